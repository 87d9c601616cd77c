"""A recipe that samples by sessions, and the requests of agents."""

import json
import threading
import urllib.error
import urllib.request

import rlzoo
from rlzoo_zoo.samplers import sessions as module

TOKEN = "a-token-for-these-tests"
ONE = ("rollout.prompts=1", "rollout.samples=1")


class World:
    """A recipe that samples by sessions; `sample()` runs while agents play in threads."""

    def __init__(self, zoo, *words):
        given = {word.partition("=")[0] for word in words}
        every = ["sampler=sessions", "sampler.port=0"]
        if "task" not in given:
            every += ["model=turns", "task=sessions", "task.prompt='1-15:'"]
        every += ["rollout.prompts=2", "rollout.samples=2", "rollout.max_new_tokens=26"]
        every += ["sampler.patience=20", "device=cpu", "train.minibatches=1", *words]
        recipe = "ppo_gae" if set(ONE) <= set(words) else "grpo"  # groups need two samples
        self.trainer = rlzoo.open_recipe(recipe, every, zoo=zoo)
        self.server = module.listening("127.0.0.1", 0, "RLZOO_TOKEN")
        self.url = f"http://127.0.0.1:{self.server.port}"

    def sample(self, *agents):
        """The batch, with agents (functions of the world) in threads."""
        self.faults = []

        def guarded(agent):
            try:
                agent(self)
            except Exception as error:
                self.faults.append(error)

        threads = [threading.Thread(target=guarded, args=(a,), daemon=True) for a in agents]
        for thread in threads:
            thread.start()
        try:
            experience = self.trainer.sample()
            for thread in threads:
                thread.join(10)
        finally:
            if self.faults:
                raise self.faults[0]
        return experience

    def ask(self, path, body=None, token=TOKEN, method=None, raw=None):
        """(status, JSON) of a request."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def begin(self):
        status, session = self.ask("/v1/sessions", {})
        assert status == 200
        return session

    def chat(self, session, messages, **more):
        return self.ask(f"{session['path']}/chat/completions", {"messages": messages, **more})

    def end(self, session, reward):
        return self.ask(f"{session['path']}/reward", {"reward": reward})
