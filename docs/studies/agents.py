"""Environments of verifiers 0.4 and OpenEnv 0.3 that play hi-lo against `rlzoo serve`.

    pip install verifiers 'openenv-core==0.3.0'
    rlzoo serve grpo model=turns task.prompt="'1-15:'" rollout.max_new_tokens=26 &
    RLZOO_TOKEN=... python docs/studies/agents.py verifiers http://127.0.0.1:8011 --agents 8

verifiers: `Env.run_episode` with `Agent.interaction`, a request's way being harness, interception
server, client. openenv: an `Environment` behind its own HTTP server, and OpenEnv's `OpenAIClient`.
Sampling is the recipe's; both post the reward that their environment gave.
"""

import argparse
import asyncio
import functools
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import uvicorn
import verifiers.v1 as vf
from openai import AsyncOpenAI
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from openenv.core.generic_client import GenericEnvClient
from openenv.core.llm_client import OpenAIClient

from agent import post, work

TURNS, TOP = 4, 15  # guesses of an episode; the largest number
__all__ = ["Direct", "HiLo", "HiLoEnv", "play_verifiers"]  # verifiers looks for plugins here
sys.modules.setdefault("agents", sys.modules[__name__])  # by this name, also when run as a script


def heard(guess, number):
    """The answer to a guess; None if it is right."""
    if guess == str(number):
        return None
    if not guess.isdigit():
        return " no "
    return " hi " if int(guess) < number else " lo "


LOOP = asyncio.new_event_loop()  # both libraries are asynchronous: all episodes share it
threading.Thread(target=LOOP.run_forever, daemon=True).start()


def within(work):
    """The result of a coroutine, from another thread than the loop's."""
    return asyncio.run_coroutine_threadsafe(work, LOOP).result()


@functools.cache
def shared():
    """One HTTP client: each costs 30 ms to make."""
    return httpx.AsyncClient(timeout=60)


# ---------------------------------------------------------------- verifiers


class Number(vf.TaskData):
    number: int


class Guess(vf.Task[Number, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace) -> float:
        return float(trace.last_reply == str(self.data.number))


class HiLo(vf.Taskset[Guess, vf.TasksetConfig]):
    def load(self):
        for number in range(1, TOP + 1):
            yield Guess(Number(prompt=f"1-{TOP}:", number=number))


class HiLoConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class HiLoEnv(vf.Env[HiLoConfig]):
    """The environment is the user: it answers each guess."""

    async def run(self, task, agents):
        async with agents.player.interaction(task) as game:
            said = await game.turn()
            for _ in range(TURNS - 1):
                reply = None if said.terminated else heard(said.last_reply, task.data.number)
                if reply is None:
                    break
                said = await game.turn(reply)


class Direct(vf.Harness[vf.HarnessConfig]):
    """One completion a turn by OpenAI's client, in this process: `null` would run uv."""

    SUPPORTS_RESUME, NEEDS_CONTAINER, EXECUTES_CODE = True, False, False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        given = data.prompt
        messages = (
            [{"role": "user", "content": given}]
            if isinstance(given, str)
            else [{"role": m.role, "content": m.content} for m in given]
        )
        client = AsyncOpenAI(base_url=endpoint, api_key=secret, http_client=shared())
        await client.chat.completions.create(model=ctx.model, messages=messages)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


def play_verifiers(harness="agents"):
    """A function of (url, session) that plays one episode and posts its reward."""
    player = vf.AgentConfig(harness={"id": harness}, runtime={"type": "subprocess"})
    env = HiLoEnv(HiLoConfig(taskset={"id": "agents"}, player=player))
    tasks = list(env.taskset)
    within(env.serving().__aenter__())

    def play(url, session):
        client = vf.EvalClientConfig(base_url=url + session["path"], api_key_var="RLZOO_TOKEN")
        ctx = vf.ModelContext(model="policy", client=client)
        episode = within(env.run_episode(tasks[session["index"] % TOP], ctx))
        (trace,) = episode.traces
        post(f"{url}{session['path']}/reward", {"reward": trace.reward})
        return trace.reward

    return play


# ---------------------------------------------------------------- OpenEnv


class Said(Action):
    text: str


class Reply(Observation):
    text: str


class GuessEnvironment(Environment):
    """The same game as OpenEnv has it: `reset(seed)`, `step`, a reward with each observation."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.now, self.number = State(), 0

    def reset(self, seed=None, episode_id=None, **_):
        self.now, self.number = State(episode_id=episode_id), (seed or 0) % TOP + 1
        return Reply(text=f"1-{TOP}:")

    def step(self, action, timeout_s=None, **_):
        self.now.step_count += 1
        reply = heard(action.text.strip(), self.number)
        over = reply is None or self.now.step_count == TURNS
        return Reply(text=reply or "", done=over, reward=float(reply is None))

    @property
    def state(self):
        return self.now


def serve_environment():
    """The environment's own server, in a thread; its address."""
    app = create_app(GuessEnvironment, Said, Reply, max_concurrent_envs=64)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.02)
    return f"http://127.0.0.1:{port}"


def play_openenv():
    """The same for OpenEnv. Its client has one address, so a session is named as the model."""
    address = serve_environment()

    async def episode(url, session):
        place, _, port = url.rpartition(":")
        model = OpenAIClient(
            place, int(port), session["id"], os.environ["RLZOO_TOKEN"], temperature=1.0
        )  # its own is 0
        async with GenericEnvClient(base_url=address) as env:
            now = await env.reset(seed=session["index"])
            messages = []
            while not now.done:
                messages.append({"role": "user", "content": now.observation["text"]})
                said = await model.complete_with_tools(messages, [])
                messages.append(said.to_message_dict())
                now = await env.step({"text": said.content})
        return now.reward

    def play(url, session):
        reward = within(episode(url, session))
        post(f"{url}{session['path']}/reward", {"reward": reward})
        return reward

    return play


PLAYERS = {"verifiers": play_verifiers, "openenv": play_openenv}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=list(PLAYERS))
    parser.add_argument("url")
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--patience", type=float, default=60.0)
    given = parser.parse_args()
    assert os.environ.get("RLZOO_TOKEN"), "set RLZOO_TOKEN"
    play = PLAYERS[given.library]()
    with ThreadPoolExecutor(given.agents) as pool:
        every = [pool.submit(work, given.url, given.patience, play) for _ in range(given.agents)]
        for one in every:
            one.result()
