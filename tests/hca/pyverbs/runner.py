"""Runs rdma-core's own tests, each with a time limit, and writes what became of
them.

usage: runner.py TESTS DEVICE RESULTS [PATTERN...]

TESTS is their folder. RESULTS gets a line for each test: pass, skip, fail or
error, its name, the seconds it took, and why.
"""

import os
import re
import signal
import sys
import time
import traceback
import unittest

LIMIT = 120  # seconds that a test may take in a machine that is emulated


class Recorder(unittest.TestResult):
    def __init__(self, file):
        super().__init__()
        self.file = file
        self.began = time.monotonic()

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()
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
        if not hasattr(test, '_testMethodName'):  # of a class, not of a test
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


def main():
    folder, device, results, *patterns = sys.argv[1:]
    sys.path[:0] = [folder, os.path.dirname(folder)]
    sys.argv[1:] = ['--dev', device]
    from args_parser import parser
    parser.parse_args()
    import tests

    wanted = [t for t in flatten(unittest.defaultTestLoader.loadTestsFromModule(tests))
              if not patterns or any(re.search(p, name(t)) for p in patterns)]
    signal.signal(signal.SIGALRM, expire)
    with open(results, 'w') as file:
        unittest.TestSuite(wanted).run(Recorder(file))


main()
