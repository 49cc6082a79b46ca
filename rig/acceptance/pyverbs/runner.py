"""Runs rdma-core's own tests, each with a time limit, and writes their results.

usage: runner.py TESTS DEVICE RESULTS [PATTERN...]

TESTS is the tests' folder. RESULTS gets a line for each test: pass, skip, fail or
error, its name, its time in seconds, and the reason.
"""

import mmap
import os
import re
import signal
import sys
import time
import traceback
import unittest

LIMIT = 120  # seconds per test, enough for an emulated machine


class Recorder(unittest.TestResult):
    def __init__(self, file, begun):
        super().__init__()
        self.file = file
        self.begun = begun
        self.began = time.monotonic()

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()
        self.begun[:] = self.testsRun.to_bytes(4, 'little')
        self.outcome = ('pass', '')
        signal.alarm(LIMIT)
        print('----', name(test), flush=True)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)
        self.write(test, *self.outcome)

    def write(self, test, outcome, why):
        seconds = time.monotonic() - self.began
        print(outcome, why, flush=True)
        self.file.write(f'{outcome}\t{name(test)}\t{seconds:.1f}\t{why}\n')
        self.file.flush()

    def fail(self, outcome, test, err):
        print(''.join(traceback.format_exception(*err)), flush=True)
        why = str(err[1]).strip().replace('\n', ' ').replace('\t', ' ')
        self.outcome = (outcome, f'{err[0].__name__}: {why}')
        if not hasattr(test, '_testMethodName'):  # of a class, not a test
            self.write(test, *self.outcome)

    def addError(self, test, err):
        self.fail('error', test, err)

    def addFailure(self, test, err):
        self.fail('fail', test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.fail('fail', test, err)

    def addSkip(self, test, reason):
        self.outcome = ('skip', reason.strip().replace('\n', ' '))
        if not hasattr(test, '_testMethodName'):
            self.write(test, *self.outcome)


def name(test):
    return test.id().removeprefix('tests.')


def flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def expire(*_):
    raise TimeoutError(f'took longer than {LIMIT} seconds')


def play(names, loader, recorder):
    """Runs tests in this process. No test is kept after it ran, so that its objects
    are destroyed with it."""
    suite = unittest.TestSuite(t for t in flatten(loader()) if name(t) in names)
    suite.run(recorder)


def main():
    folder, device, results, *patterns = sys.argv[1:]
    sys.path[:0] = [folder, os.path.dirname(folder)]
    sys.argv[1:] = ['--dev', device]
    from args_parser import parser
    parser.parse_args()
    import tests

    def loader():
        return unittest.defaultTestLoader.loadTestsFromModule(tests)

    names = [name(t) for t in flatten(loader())]
    names = [n for n in names if not patterns or any(re.search(p, n) for p in patterns)]
    signal.signal(signal.SIGALRM, expire)
    begun = mmap.mmap(-1, 4)  # the number of tests that the child has begun
    with open(results, 'w') as file:
        while names:
            begun[:] = bytes(4)
            child = os.fork()
            if child == 0:
                play(names, loader, Recorder(file, begun))
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            n = int.from_bytes(begun[:], 'little')
            if status != 0 and n > 0:  # the last one crashed the process
                file.write(f'error\t{names[n - 1]}\t0\tended the process with wait status {status}\n')
                file.flush()
            names = names[n:] if status != 0 and n > 0 else []


main()
