"""What a tool has built is built once: the tests of one tool run in one process, in whatever file they are."""

from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).parent


class ByTool(LoadScopeScheduling):
    """The scope of a test is the folder below this one, or the file."""

    def _split_scope(self, nodeid):
        path = self.config.rootpath / nodeid.partition("::")[0]
        return path.relative_to(HERE).parts[0] if path.is_relative_to(HERE) else str(path)


def pytest_xdist_make_scheduler(config, log):
    return ByTool(config, log)
