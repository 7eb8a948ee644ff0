FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python -m venv /opt/tailrace \
 && /opt/tailrace/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY collector collector
RUN /opt/tailrace/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /var/lib/tailrace --create-home tailrace
COPY --from=build /opt/tailrace /opt/tailrace
ENV PATH=/opt/tailrace/bin:$PATH TAILRACE_STORE_PATH=/var/lib/tailrace
USER tailrace
VOLUME /var/lib/tailrace
EXPOSE 7701/udp 7701 7702 9464
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9464/healthz')"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tailrace"]
CMD ["serve"]
