"""No test reaches another machine.

pytest-socket (`--allow-hosts` in pyproject.toml) guards the connections of the test process, of each worker of xdist
too. Processes that tests start are not guarded by it: they inherit a proxy that does not exist, which HTTP clients use
for every host but this one. A connection of theirs by other means would not be noticed.
"""

import os
import signal

LOCAL = "127.0.0.1,localhost,::1"


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            os.environ[variable] = "http://127.0.0.1:9"
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = LOCAL
