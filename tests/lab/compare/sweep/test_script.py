"""A sweep of a plain script, or of a notebook."""

import sys

from rlzoo_zoo.executors import local as workers


class Held:
    """A context of multiprocessing whose processes only look at what they would begin with."""

    def __init__(self):
        self.mains = []

    def get_context(self, _):
        return self

    def Pipe(self):
        return self, self

    def Process(self, **_):
        return self

    def start(self):
        self.mains.append(sys.modules["__main__"])

    def close(self): ...


def test_a_worker_does_not_begin_with_the_script_that_sweeps(monkeypatch, tmp_path):
    held, crew = Held(), object.__new__(workers.Crew)
    monkeypatch.setattr(workers, "multiprocessing", held)
    crew.gpus, crew.folder, crew.work = [], tmp_path, None
    before = sys.modules["__main__"]
    crew.hire(0)
    assert [getattr(main, "__file__", None) for main in held.mains] == [None]
    assert held.mains[0].__spec__ is None
    assert sys.modules["__main__"] is before
