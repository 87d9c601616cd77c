"""Environments of verifiers 0.4 and OpenEnv 0.3 that play hi-lo against `rlzoo serve`.

    pip install verifiers 'openenv-core==0.3.0'
    rlzoo serve grpo model=turns task.prompt='1-15:' rollout.max_new_tokens=26 &
    RLZOO_TOKEN=... python docs/studies/agents.py verifiers http://127.0.0.1:8011 --agents 8

verifiers: `Env.run_episode` with `Agent.interaction`, a request's way being harness, interception
server, client. openenv: an `Environment` behind its own HTTP server, and OpenEnv's `OpenAIClient`.
Sampling is the recipe's; both post the reward that their environment gave.
"""

import argparse
import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import verifiers.v1 as vf
from agent import post, work
from openai import AsyncOpenAI

TURNS, TOP = 4, 15  # guesses of an episode; the largest number
__all__ = ["Direct", "HiLo", "HiLoEnv", "play_verifiers"]  # verifiers looks for plugins here
sys.modules.setdefault("agents", sys.modules[__name__])  # by this name, also when run as a script


def heard(guess, number):
    """What a guess is answered; None if it is right."""
    if guess == str(number):
        return None
    if not guess.isdigit():
        return " no "
    return " hi " if int(guess) < number else " lo "


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
        async with AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


def play_verifiers(harness="agents"):
    """A function of (url, session) that plays one episode and posts its reward."""
    player = vf.AgentConfig(harness={"id": harness}, runtime={"type": "subprocess"})
    env = HiLoEnv(HiLoConfig(taskset={"id": "agents"}, player=player))
    tasks = list(env.taskset)

    def play(url, session):
        client = vf.EvalClientConfig(base_url=url + session["path"], api_key_var="RLZOO_TOKEN")
        ctx = vf.ModelContext(model="policy", client=client)
        episode = asyncio.run(env.run_episode(tasks[session["index"] % TOP], ctx))
        (trace,) = episode.traces
        post(f"{url}{session['path']}/reward", {"reward": trace.reward})
        return episode

    return play


PLAYERS = {"verifiers": play_verifiers}

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
