# The compiled module has what these three have, and behaves as they do.

from tailrace_client._recorder import Recorder as Recorder
from tailrace_client._span import OFF as OFF, Span as Span
from tailrace_client._switch import (
    counter as counter,
    event as event,
    miss as miss,
    span as span,
    switch as switch,
    write as write,
)
