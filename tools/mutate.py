#!/usr/bin/env python3
"""Breaks the code in small ways and asks whether a test notices.

    mutate.py [--list] [--only PATTERN] [--jobs N] [--tree FOLDER] [--limit SECONDS] [LIST]

LIST (tests/mutations.txt unless given) names places and what to write there instead. Each is applied by
itself to a copy of the tree under build/mutants, the tests are built there and the suites named beside it
are run: of the unit tests, or of another program. A suite that fails, crashes or hangs has noticed, one whose
tests are all skipped has not. What no suite noticed has survived, and that is a failure; so is a mutation
that does not apply any more or does not compile: the list follows the code. The last line is the sum, as of
every test: `N passed, N failed, N skipped`.

The list, line by line:

    # a comment
    @ src/diffusion/canvas.c: diffusion settle     a file, and the suites to run (SUITE or SUITE/CASE)
    @ src/cuda/cuda_norm.cuh: cuda_host_tests:norm  the same of another program, with what it is given
    the steps are not counted                      what goes wrong, in words: begins a mutation
    ? request                                      other suites for this one, if need be
    - c->step++;                                   text that occurs once in the file; any white space for any
    +                                              what stands there instead

Several lines of - or + are one text. Standard library only.
"""
import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

SKIP = {'.git', 'build', '__pycache__'}


def command_of(suite):
    """The program that has a suite, and its arguments."""
    program, _, named = suite.rpartition(':')
    return 'build/mutant/' + (program or 'unit_tests'), named.split('/')


class Mutation:
    def __init__(self, what, path, suites, line):
        self.what, self.path, self.suites, self.line = what, path, suites, line
        self.old, self.new = [], []

    def apply(self, text):
        """The mutated text, or None and why not."""
        pattern = r'\s+'.join(re.escape(word) for word in '\n'.join(self.old).split())
        found = list(re.finditer(pattern, text)) if pattern else []
        if len(found) != 1:
            return None, f'its text occurs {len(found)} times'
        start, end = found[0].span()
        return text[:start] + '\n'.join(self.new) + text[end:], None


def read_list(path):
    mutations, where, suites = [], None, []
    with open(path, encoding='utf-8') as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip('\n')
            mark, rest = line[:1], line[1:].removeprefix(' ')
            if not line.strip() or mark == '#':
                continue
            if mark == '@':
                where, named = rest.split(':', 1)
                suites = named.split()
            elif mark in '?-+' and not mutations:
                sys.exit(f'{path}:{number}: no mutation has begun')
            elif mark == '?':
                mutations[-1].suites = rest.split()
            elif mark == '-':
                mutations[-1].old.append(rest)
            elif mark == '+':
                mutations[-1].new.append(rest)
            elif where is None:
                sys.exit(f'{path}:{number}: no file was named')
            else:
                mutations.append(Mutation(line.strip(), where, suites, number))
    return mutations


def source_files(tree):
    for folder, folders, files in os.walk(tree, followlinks=True):
        folders[:] = [f for f in folders if f not in SKIP]
        for name in files:
            yield os.path.relpath(os.path.join(folder, name), tree)


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def bring_up_to_date(tree, copy):
    """Makes the copy equal to the tree and touches nothing that already is, so that little is built again."""
    wanted = set(source_files(tree))
    for name in wanted:
        source, target = os.path.join(tree, name), os.path.join(copy, name)
        if not os.path.exists(source) or (os.path.exists(target) and read(source) == read(target)):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    for name in set(source_files(copy)) - wanted:
        os.remove(os.path.join(copy, name))


def kill_session(session):
    """The test runner puts each test into a process group of its own; all of them are in its session."""
    for name in filter(str.isdigit, os.listdir('/proc')):
        try:
            if os.getsid(int(name)) == session:
                os.kill(int(name), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


class Workshop:
    """One copy of the tree, in which one mutation at a time is built and tried."""

    def __init__(self, tree, copy, limit):
        self.copy, self.limit = copy, limit
        self.seconds = {}  # by suite, what it takes as the code is
        self.environment = dict(os.environ, CK_DEFAULT_TIMEOUT=str(limit))
        for name in ('MAKEFLAGS', 'MFLAGS', 'MAKELEVEL'):  # of a make that this may have been started by
            self.environment.pop(name, None)
        os.makedirs(copy, exist_ok=True)
        bring_up_to_date(tree, copy)

    def build(self, suites, jobs=1):
        compiler = 'ccache cc' if shutil.which('ccache') else 'cc'
        made = subprocess.run(
            ['make', '-s', f'-j{jobs}', 'CFG=mutant', f'CC={compiler}', 'CUDA=0', 'CFLAGS=-g0',
             *sorted({command_of(suite)[0] for suite in suites})],
            cwd=self.copy, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
        return made.returncode == 0, made.stdout.decode(errors='replace')

    def outcome(self, suite):
        """'noticed' when a suite fails, crashes or takes too long, 'passed', or 'nothing ran', and what it said."""
        program, named = command_of(suite)
        with subprocess.Popen(
                [program] + named, cwd=self.copy, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True) as running:
            try:
                patience = self.limit + 5 * self.seconds.get(suite, 20 * self.limit)
                said = running.communicate(timeout=patience)[0].decode(errors='replace')
            except subprocess.TimeoutExpired:
                kill_session(running.pid)
                return 'noticed', 'ran out of time'
        if running.returncode != 0:
            return 'noticed', said
        # Tests that were all skipped have seen nothing: no evidence as the code is, and none of a mutation either.
        nothing_ran = ''.join(said.splitlines()[-1:]).startswith('0 passed, 0 failed, ')
        return 'nothing ran' if nothing_ran else 'passed', said

    def attempt(self, mutation):
        """'killed' and by whom, or what went wrong."""
        path = os.path.join(self.copy, mutation.path)
        if not os.path.exists(path):
            return 'does not apply', 'no such file'
        original = read(path)
        mutated, why = mutation.apply(original.decode())
        if mutated is None:
            return 'does not apply', why
        with open(path, 'wb') as file:
            file.write(mutated.encode())
        try:
            built, said = self.build(mutation.suites)
            if not built:
                return 'does not compile', said
            for suite in mutation.suites:
                if self.outcome(suite)[0] == 'noticed':
                    return 'killed', suite
            return 'survived', ', '.join(mutation.suites)
        finally:
            with open(path, 'wb') as file:
                file.write(original)


def check_unbroken(workshops, suites):
    """Without a mutation everything has to pass, or a failure would say nothing."""
    for suite in sorted(suites):
        began = time.monotonic()
        outcome, said = workshops[0].outcome(suite)
        for workshop in workshops:
            workshop.seconds[suite] = time.monotonic() - began
        if outcome != 'passed':
            print(said)
            print(f'FAILED: {suite} does not pass as the code is')
            return False
    return True


def run_all(tree, mutations, jobs, limit):
    copies = [os.path.join(tree, 'build', 'mutants', str(k)) for k in range(jobs)]
    workshops = [Workshop(tree, copy, limit) for copy in copies]
    suites = {s for m in mutations for s in m.suites}
    for workshop in workshops:
        built, said = workshop.build(suites, jobs)
        if not built:
            print(said + 'FAILED: the tree does not build')
            return 0, 1
    if not check_unbroken(workshops, suites):
        return 0, 1

    todo, lock, counts = queue.SimpleQueue(), threading.Lock(), {'killed': 0}
    for mutation in mutations:
        todo.put(mutation)

    def work(workshop):
        while True:
            try:
                mutation = todo.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            outcome, detail = workshop.attempt(mutation)
            with lock:
                counts[outcome] = counts.get(outcome, 0) + 1
                mark = '' if outcome == 'killed' else 'FAILED: '
                print(f'{mark}{outcome}: {mutation.path}: {mutation.what} '
                      f'({detail.strip()}; {time.monotonic() - began:.1f} s)', flush=True)

    threads = [threading.Thread(target=work, args=(w,)) for w in workshops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts['killed'], sum(counts.values()) - counts['killed']


def show(tree, mutations):
    """Prints the list; returns how many of it the code has left behind."""
    n_stale = 0
    for m in mutations:
        path = os.path.join(tree, m.path)
        why = m.apply(read(path).decode())[1] if os.path.exists(path) else 'no such file'
        n_stale += why is not None
        print(f'{m.path}: {m.what} ({", ".join(m.suites)})' + (f' FAILED: does not apply: {why}' if why else ''))
    print(f'{len(mutations)} mutations')
    return n_stale


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description='Breaks the code in small ways and asks whether a test notices.')
    parser.add_argument('--list', action='store_true', help='show the mutations and whether they apply, run nothing')
    parser.add_argument('--only', metavar='PATTERN', default='', help='those whose file or words contain this (a regular expression)')
    parser.add_argument('--jobs', type=int, default=os.cpu_count() or 1, help='how many at a time, each in a copy of its own')
    parser.add_argument('--tree', default=here, help='the source tree')
    parser.add_argument('--limit', type=int, default=10, help='seconds that one test may take, and a suite beyond five times its own')
    parser.add_argument('file', nargs='?', metavar='LIST')
    options = parser.parse_args()

    mutations = read_list(options.file or os.path.join(options.tree, 'tests', 'mutations.txt'))
    chosen = [m for m in mutations if re.search(options.only, f'{m.path}: {m.what}')]
    if options.list:
        sys.exit(1 if show(options.tree, chosen) else 0)
    passed, failed = run_all(options.tree, chosen, max(1, min(options.jobs, len(chosen))), options.limit)
    print(f'{passed} passed, {failed} failed, {len(mutations) - len(chosen)} skipped')
    sys.exit(1 if failed or not chosen else 0)


if __name__ == '__main__':
    main()
