# The collector alone, as a user that may do nothing. It listens on loopback, which is the container's own, until
# it is told otherwise: deploy/compose.yaml has how.
#
# A tag can be moved: deploy/README.md has how to build on an image that cannot, by its digest. WHEEL names a wheel of the
# collector below this directory, which is then installed; otherwise one is compiled here.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE} AS build
USER root
ARG WHEEL=LICENSE
COPY ${WHEEL} /opt/wheels/
# For the kernels: a C compiler, and the headers of Python where the image has none. The final image has neither.
RUN if ! ls /opt/wheels/*.whl && ! { command -v cc && ls "$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"; }; then \
      if command -v apt-get; then \
        headers=$(python -c 'import sys; print("python3-dev" * (sys.prefix == "/usr"))') \
        && apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev $headers; \
      else dnf install -y gcc python3-devel || microdnf install -y gcc python3-devel; \
      fi \
    fi
WORKDIR /src
COPY requirements/build.txt requirements/runtime.txt requirements/object-store.txt requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
 && python -m venv --without-pip /opt/tailrace \
 && /opt/build/bin/pip --python /opt/tailrace install --no-cache-dir --require-hashes \
      -r requirements/runtime.txt -r requirements/object-store.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY share share
COPY collector collector
RUN { ls /opt/wheels/*.whl || TAILRACE_KERNELS=require /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /opt/wheels . ; } \
 && /opt/build/bin/pip --python /opt/tailrace install --no-cache-dir --no-deps /opt/wheels/*.whl \
 && rm -r /opt/tailrace/lib/python3.*/site-packages/pyarrow/include /opt/tailrace/lib/python3.*/site-packages/pyarrow/tests

FROM ${PYTHON_IMAGE}
USER root
RUN useradd --system --uid 10001 --home-dir /var/lib/tailrace --create-home tailrace
COPY --from=build /opt/tailrace /opt/tailrace
ENV PATH=/opt/tailrace/bin:$PATH TAILRACE_STORE_PATH=/var/lib/tailrace
USER tailrace
VOLUME /var/lib/tailrace
EXPOSE 7701/udp 7701 7702 9464
# Asks where the admin endpoint is by default, without TLS, and by no proxy, which Docker may name in each container.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["python", "-c", "import os, urllib.request; os.environ['no_proxy'] = '*'; urllib.request.urlopen('http://127.0.0.1:9464/healthz')"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tailrace"]
CMD ["serve"]
