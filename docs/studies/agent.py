"""An agent that plays hi-lo against `rlzoo serve`, with the standard library only.

rlzoo serve grpo model=turns task=hi_lo &
RLZOO_TOKEN=... python docs/studies/agent.py http://127.0.0.1:8011 --agents 16
"""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

NUMBERS = [str(number) for number in range(1, 16)]


def post(address, body):
    """The answer's JSON; None where the run is busy or has ended."""
    request = urllib.request.Request(address, json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {os.environ['RLZOO_TOKEN']}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code in (400, 410, 503):  # the row is full, the round is over, the run updates
            return None
        raise


def episode(url, session):
    """One game: up to four guesses of a number from 1 to 15; 1 where the last is right."""
    number, base = (int(session["answer"]) - 1) % 15 + 1, url + session["path"]
    messages = list(session["messages"])
    reward = 0.0
    for turn in range(4):
        answer = post(f"{base}/chat/completions", {"messages": messages})
        if answer is None:
            break
        guess, how = (answer["choices"][0][name] for name in ("message", "finish_reason"))
        reward = float(guess["content"] == str(number) and how == "stop")
        if reward or turn == 3:
            break
        guessed = NUMBERS.index(guess["content"]) + 1 if guess["content"] in NUMBERS else None
        reply = " no " if guessed is None else " hi " if guessed < number else " lo "
        messages += [guess, {"role": "user", "content": reply}]
    post(f"{base}/reward", {"reward": reward})


def work(url, patience, play=episode):
    began = time.monotonic()
    while time.monotonic() - began < patience:
        try:
            session = post(f"{url}/v1/sessions", {})
            if session is not None:
                play(url, session)
                began = time.monotonic()
        except (urllib.error.URLError, ConnectionError):  # not yet there, or no longer
            time.sleep(0.2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--patience", type=float, default=60.0)
    given = parser.parse_args()
    with ThreadPoolExecutor(given.agents) as pool:
        for one in [pool.submit(work, given.url, given.patience) for _ in range(given.agents)]:
            one.result()
    sys.exit(0)
