"""A job that takes turns with others: started once, asleep while it waits. turns.hpp says what it
reads and prints. And what peers.py and gpu_peers.py have in common."""

import math
import os
import random
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import driver  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A contender gave a wrong result, ended or fell silent; the text says which and why."""


class NotReadyInTime(Failed):
    """A contender was not ready by the time that it was given; nothing is said to be wrong with it."""


def processes_of(session):
    """The numbers of all processes that a job has started, its own included."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and session_and_ticks(entry)[0] == session:
            found.append(int(entry))
    return found


def session_and_ticks(process):
    """The session of a process, and the CPU time that it has used; nothing once it has ended."""
    try:
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None, 0
    return int(fields[3]), int(fields[11]) + int(fields[12])


def peak_mib(processes):
    """The most memory that these processes have held so far, together."""
    kib = 0
    for process in processes:
        try:
            text = Path(f"/proc/{process}/status").read_text()
        except OSError:  # it has ended
            continue
        kib += sum(map(int, re.findall(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE)))
    return kib / 1024


class Contender:
    """Starts the job and waits until it has found that it computes what it should: `results` are the
    tensors that it must have compared with the problem's. `ready_by` is a time of time.monotonic()."""

    def __init__(self, name, command, results=(), environment=None, patience=300, ready_by=math.inf):
        self.name = name
        self.patience = patience  # seconds that it may say nothing
        self.versions = {}
        self.differences = {}
        self.slept, self.spun = 0.0, 0.0  # seconds of others' turns, and CPU time used in them
        self._since = None
        self._buffer = b""
        self._errors = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._errors, env=dict(os.environ, **(environment or {})),
                start_new_session=True)
        except OSError as problem:
            self._errors.close()
            raise Failed(f"{name}: {command[0]} cannot be started: {problem.strerror}") from None
        try:
            self._get_ready(results, ready_by)
        except Failed:
            self.end(0)
            raise
        self._processes = processes_of(self._process.pid)
        self.peak_mib = peak_mib(self._processes)

    def _get_ready(self, results, ready_by):
        while (line := self._read_line(ready_by)) != "ready":
            kind, _, rest = line.partition(" ")
            what, _, value = rest.rpartition(" ") if kind == "difference" else rest.partition(" ")
            if kind == "version":
                self.versions[what] = value
            elif kind == "difference":
                self.differences[what] = float(value)
            else:
                raise Failed(f"{self.name}: printed '{line}' instead of 'ready'")
        unchecked = [tensor for tensor in results if tensor not in self.differences]
        if unchecked:
            raise Failed(f"{self.name}: is ready and has not said how far {', '.join(unchecked)} may "
                         "be from exact; turns.hpp says how")

    def turn(self, mode, calls):
        """The nanoseconds of each of so many calls. Nobody else works meanwhile."""
        self._woke()
        try:
            self._process.stdin.write(f"{mode} {calls}\n".encode())
        except BrokenPipeError:
            raise Failed(self._words("ended while it waited for its turn")) from None
        times = self._read_line().split()
        if len(times) != calls or not all(time.isdigit() for time in times):
            raise Failed(f"{self.name}: was asked for {calls} calls and printed "
                         f"'{' '.join(times)[:60]}'")
        return [int(time) for time in times]

    def sleeps(self):
        """Its turn is over, and threads that spin for a while before they sleep have done so."""
        self._since = time.monotonic(), self._cpu_seconds()

    def _woke(self):
        if self._since:
            self.slept += time.monotonic() - self._since[0]
            self.spun += self._cpu_seconds() - self._since[1]
            self._since = None

    def _cpu_seconds(self):
        return sum(session_and_ticks(process)[1] for process in self._processes) / TICKS

    def _read_line(self, ready_by=math.inf):
        until = time.monotonic() + self.patience
        while b"\n" not in self._buffer:
            left = min(until, ready_by) - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                if ready_by < until:
                    raise NotReadyInTime(f"{self.name}: was not ready in time")
                raise Failed(self._words(f"said nothing for {self.patience} s"))
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                raise Failed(self._words("ended"))
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace").strip()

    def _words(self, what):
        """What happened, and the last of what it said of it."""
        try:
            self._process.wait(timeout=1)
            what += f", with exit code {self._process.returncode}"
        except subprocess.TimeoutExpired:
            pass
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return "\n    ".join([f"{self.name}: {what}" + (". It said:" if said else ""), *said[-8:]])

    def end(self, seconds=20):
        """Lets it go, and ends what does not go by itself in this time."""
        processes = processes_of(self._process.pid)
        self._process.stdin.close()
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pass
        for process in processes:
            if session_and_ticks(process)[0] == self._process.pid:
                os.kill(process, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def take_turns(contenders, mode, rounds, block_seconds, pause_seconds, order, failed):
    """Every contender has one block of calls in each round, in an order that `order` shuffles. Returns
    for each the median nanoseconds of a call in each of its blocks. Who fails is given to
    `failed(contender, problem)` and left out from then on."""
    playing = list(contenders)
    calls, blocks = {}, {contender: [] for contender in contenders}

    def block(contender, count):
        try:
            times = contender.turn(mode, count)
        except Failed as problem:
            playing.remove(contender)
            del blocks[contender]
            contender.end(0)
            failed(contender, problem)
            return None
        time.sleep(pause_seconds)
        contender.sleeps()
        return statistics.median(times)

    for contender in contenders:
        once = block(contender, 3)
        calls[contender] = once and max(3, min(5000, int(block_seconds * 1e9 / once)))
    for _ in range(rounds):
        turns = list(playing)
        order.shuffle(turns)
        for contender in turns:
            median = block(contender, calls[contender])
            if median is not None:
                blocks[contender].append(median)
    return blocks


def parser_of(text, build, rounds, block):
    """The options that both drivers have."""
    parser = driver.parser_of(text, rounds)
    made = driver.TREE / "build/peers/venv/bin/python"
    parser.add_argument("--build", type=Path, default=driver.TREE / build, help="where our programs are")
    parser.add_argument("--python", type=Path, help="a Python with torch, numpy, llama_cpp and gguf",
                        default=os.environ.get("PEERS_PYTHON") or (made if made.exists()
                                                                   else sys.executable))
    parser.add_argument("--only", type=driver.pattern, default="", metavar="TEXT",
                        help="problems whose name has this regular expression, such as 'bf16'")
    parser.add_argument("--block", type=driver.above_zero, default=block,
                        help="about how many seconds a block of calls lasts")
    return parser


def chosen_of(problems, pattern):
    """Those of [(name, ...)] whose name has the pattern; ends with 2 if there is none."""
    chosen = [problem for problem in problems if not pattern or pattern.search(problem[0])]
    if not chosen:
        driver.leave(f"no problem has '{pattern.pattern}' in its name; they are called "
                     f"'{problems[0][0]}' and the like")
    return chosen


def problem_of(python, test):
    """Why this Python lacks what a contender needs, or nothing; `test` is a program that ends well where it
    can take part."""
    try:
        tried = subprocess.run([python, "-c", test], capture_output=True, text=True)
        problem = tried.returncode != 0 and tried.stderr.strip()[-200:]
    except OSError as error:
        problem = error.strerror
    return problem and (f"'{test}' fails by {python}: {problem}; bench/peers/get_peers gets a Python that "
                        "has it (3 GB), and --python names another one")


def compete(report, name, commands, options, pause, environment=None, ready_by=math.inf, needed=None):
    """One problem by all of `commands`, which are {contender: (command, results, modes)}. Adds to the
    report for each mode the comparison of each of ours with all others, and what failed. Nothing is
    measured without the contender `needed`. Returns {contender: share of a core that it used in others'
    turns}."""
    playing, shares, failures = [], {}, []

    def fail(contender, problem):
        if contender:
            playing.remove(contender)
        failures.append(driver.failed(name, str(problem)))
        print(f"FAILED: {name}: {problem}", file=sys.stderr, flush=True)

    try:
        for who, (command, results, _) in commands.items():
            try:
                playing.append(Contender(who, command, results, environment, ready_by=ready_by))
                report.context.update(playing[-1].versions)
            except NotReadyInTime as problem:  # and no time is left to measure the others
                print(f"left out: {name}: {problem}", file=sys.stderr, flush=True)
                return shares
            except Failed as problem:
                fail(None, problem)
                if who == needed:
                    break
        for mode, words in {"forward": "forward", "training": "forward and backward",
                            "step": "step"}.items():
            able = [contender for contender in playing if mode in commands[contender.name][2]]
            blocks = take_turns(able, mode, options.rounds, options.block, pause,
                                random.Random(f"{name} {mode}"), fail)
            report.add(compared(f"{name}/{words}", blocks, mode))
    finally:
        for contender in playing:
            shares[contender.name] = contender.spun / contender.slept if contender.slept else 0
            contender.end()
        report.put(report.entries + failures)
    return shares


def compared(name, blocks, mode):
    """A comparison of each of ours, whose names begin so, with all that are not ours."""
    seconds, also = {}, {}
    for contender, times in blocks.items():
        seconds[contender.name] = [1e-9 * block for block in times]
        also[contender.name] = {"peak MiB": contender.peak_mib, "from exact": max(
            difference for tensor, difference in contender.differences.items()
            if mode == "training" or not tensor.startswith("grad."))}
    others = {who: times for who, times in seconds.items() if not who.startswith("ours")}
    return [driver.compared(name, {**others, ours: seconds[ours]}, also)
            for ours in seconds if ours not in others]
