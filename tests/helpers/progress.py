"""What the tests say while they run: what is tested, how far they are, for how long."""

import time

import pytest

MANY = 300  # fewer tests are told by pytest's dots
PARTS = 20


class Progress:
    """A plugin of pytest for the process that reports: a line for each twentieth of the tests."""

    def __init__(self, config):
        self.config = config
        self.began = time.monotonic()
        self.all = self.done = self.failed = 0

    def pytest_collection_finish(self, session):
        self._begin(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids):
        self._begin(len(ids))

    def _begin(self, count):
        if self.all or count < MANY:
            return
        self.all = count
        self._say(
            f"{count:,} tests: formulas, limits and gradients of each component; training, "
            "resuming, models; the docs, executed; killed processes. Some 3 minutes on two free "
            "cores."
        )
        self._reporter()._show_progress_info = False  # it counts letters, and there are none

    def pytest_report_teststatus(self, report):
        silent = self.all and report.passed and report.when == "call"
        return ("passed", "", "") if silent else None

    def pytest_runtest_logreport(self, report):
        self.failed += report.failed
        if report.when != "teardown" or not self.all:
            return
        self.done += 1
        if self.done * PARTS // self.all == (self.done - 1) * PARTS // self.all:
            return
        seconds = round(time.monotonic() - self.began)
        failed = f", {self.failed} failed" if self.failed else ""
        folder = report.nodeid.rpartition("/")[0]
        self._say(
            f"{self.done / self.all:4.0%}  {seconds // 60}:{seconds % 60:02d}{failed}  {folder}"
        )

    def _say(self, text):
        self._reporter().ensure_newline()
        self._reporter().write_line(text)

    def _reporter(self):
        return self.config.pluginmanager.get_plugin("terminalreporter")
