"""Hypercorn's trio worker on a socket of ours, so that port 0 works and the address is known."""

from __future__ import annotations

import socket

import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import serve as hypercorn_serve
from starlette.applications import Starlette


async def serve(
    application: Starlette,
    listener: socket.socket,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer on a bound socket until cancelled; `started` once it listens."""
    config = HypercornConfig()
    config.bind = [f"fd://{listener.detach()}"]
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = 1.0
    config.include_server_header = False
    async with trio.open_nursery() as nursery:
        await nursery.start(_serve, application, config)
        task_status.started()


async def _serve(
    application: Starlette,
    config: HypercornConfig,
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    # hypercorn's own type of an application is narrower than ASGI's
    await hypercorn_serve(application, config, task_status=task_status)  # type: ignore[arg-type]
