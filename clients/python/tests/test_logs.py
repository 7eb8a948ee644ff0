from __future__ import annotations

import logging
import logging.config
import logging.handlers
import os
import queue
import signal
import threading

import pytest

import tailrace_client
from clients.python.tests.reader import attributes
from tailrace_client.logs import Handler


@pytest.fixture
def logger():
    """Yield a logger whose only handler is the client's."""
    made = logging.Logger("solver.io", logging.DEBUG)  # noqa: LOG001 - none of the process's
    made.addHandler(Handler())
    return made


def fail():
    raise KeyError("x")


def test_a_record_is_an_event_named_by_its_statement(emitted, logger):
    for seconds in (1, 2):
        logger.warning("took %d s", seconds)
    first, second = emitted()
    assert first.description == second.description == "took %d s"
    assert first.start == first.end
    line = attributes(first).pop("line")
    assert isinstance(line, int)
    assert attributes(first) == {
        "level": "WARNING",
        "logger": "solver.io",
        "message": "took 1 s",
        "file": __file__,
        "line": line,
    }
    assert attributes(second)["message"] == "took 2 s"


def test_extra_fields_are_attributes_with_their_types(emitted, logger):
    logger.info("x", extra={"cell": 3, "load": [0.5, 1.5], "level": "mine", "self": 1})
    (event,) = emitted()
    found = attributes(event)
    assert (found["cell"], found["load"], found["self"]) == (3, [0.5, 1.5], 1)
    assert (found["level"], found["extra.level"]) == ("INFO", "mine")


def test_an_exception_is_named_and_its_traceback_kept(emitted, logger):
    try:
        fail()
    except KeyError:
        logger.exception("failed")
    logger.error(ValueError("as message"))
    first, second = emitted()
    assert attributes(first)["error"] == "KeyError"
    assert attributes(first)["traceback"].startswith("Traceback (most recent")
    assert second.description == "ValueError"
    assert attributes(second)["message"] == "as message"


def test_level_filters_and_formatter_are_honoured(emitted, logger):
    (handler,) = logger.handlers
    handler.setLevel("WARNING")
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    handler.addFilter(lambda record: "secret" not in record.getMessage())
    logger.info("too low")
    logger.error("secret")
    try:
        fail()
    except KeyError:
        logger.exception("shown %s", "here")
    (event,) = emitted()
    assert attributes(event)["message"].startswith("ERROR: shown here\nTraceback")
    assert "traceback" not in attributes(event)


class Hostile:
    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


def test_no_record_raises_and_each_is_an_event_or_a_counted_discard(emitted, logger, capfd):
    logger.info("too few %s %s", 1)  # noqa: PLE1206 - it is what this is about
    logger.info("wrong %d", "text")
    logger.info(Hostile())
    logger.info("hostile %s", Hostile())
    logger.info("x" * 100_000)
    logger.info("hostile extra", extra={"value": Hostile()})
    logger.handle(logging.makeLogRecord({"msg": None, "levelno": 20, "exc_info": "odd"}))
    discarded = sum(tailrace_client._process.current.discarded.values())
    found = emitted()
    assert len(found) + discarded == 7
    assert attributes(found[0])["message"] == "too few %s %s"
    assert attributes(found[0])["args"] == ["1"] or attributes(found[0])["args"] == [1]
    assert max(len(event.description) for event in found) == 255
    assert capfd.readouterr().err == ""


def test_a_filter_that_raises_goes_where_logging_sends_errors(emitted, logger, capfd):
    logger.handlers[0].addFilter(lambda _: 1 / 0)
    logger.info("x")
    assert emitted() == []
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_value_that_logs_itself_does_not_recurse(emitted, logger):
    class Chatty:
        def __str__(self):
            logger.info("asked for %s", self)
            return "chatty"

    logger.info("value %s", Chatty())
    inner, outer = emitted()
    assert inner.description == "asked for %s"
    assert attributes(inner) == {"level": "INFO", "logger": "solver.io"}
    assert attributes(outer)["message"] == "value chatty"


def test_a_value_may_wait_for_another_thread_that_logs(emitted, logger):
    class Waiting:
        def __str__(self):
            thread = threading.Thread(target=logger.info, args=("from there",))
            thread.start()
            thread.join(20)
            assert not thread.is_alive()
            return "here"

    logger.info("from %s", Waiting())
    assert [event.description for event in emitted()] == ["from there", "from %s"]


def test_threads_and_signal_handlers_may_log_at_once(emitted, logger):
    signal.signal(signal.SIGUSR1, lambda *_: logger.info("signal"))

    def work():
        for number in range(500):
            logger.info("number %d", number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        os.kill(os.getpid(), signal.SIGUSR1)
        logger.info("between")
    for thread in threads:
        thread.join()
    discarded = sum(tailrace_client._process.current.discarded.values())
    assert len(emitted()) + discarded == 2000 + 2 * 50
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_while_off_a_record_is_not_looked_at(logger):
    tailrace_client.close()
    logger.handlers[0].addFilter(lambda _: 1 / 0)
    logger.info("x %s", Hostile())


def test_behind_a_queue(emitted):
    records = queue.SimpleQueue()
    logger = logging.Logger("queued")  # noqa: LOG001
    logger.addHandler(logging.handlers.QueueHandler(records))
    listener = logging.handlers.QueueListener(records, Handler())
    listener.start()
    for number in range(100):
        logger.warning("number %d", number)
    listener.stop()
    assert [attributes(event)["message"] for event in emitted()] == [
        f"number {number}" for number in range(100)
    ]


def test_a_dictionary_configures_it(emitted):
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"short": {"format": "%(name)s %(message)s"}},
            "handlers": {
                "tailrace": {
                    "class": "tailrace_client.logs.Handler",
                    "level": "INFO",
                    "formatter": "short",
                }
            },
            "loggers": {"tests.configured": {"handlers": ["tailrace"], "level": "DEBUG"}},
        }
    )
    logger = logging.getLogger("tests.configured")
    try:
        logger.debug("too low")
        logger.info("shown %d", 1)
    finally:
        logger.handlers.clear()
    (event,) = emitted()
    assert attributes(event)["message"] == "tests.configured shown 1"
