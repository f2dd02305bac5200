# SPDX-License-Identifier: Apache-2.0
"""Plain read bandwidth: {"1": GB/s, "2": ...} for the thread counts given."""

import json
import statistics
import sys
import threading
import time

import numpy as np

ROUNDS = 7
# Far more than any cache holds.
DATA = np.ones(2**26, np.uint64)


def gb_per_second(threads):
    parts = np.array_split(DATA, threads)
    rates = []
    for _ in range(ROUNDS):
        # numpy reads with vectors and without Python's lock.
        readers = [threading.Thread(target=np.bitwise_or.reduce, args=(part,))
                   for part in parts]
        start = time.perf_counter()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        rates.append(DATA.nbytes / (time.perf_counter() - start) / 1e9)
    return statistics.median(rates)


print(json.dumps({n: gb_per_second(int(n)) for n in sys.argv[1:]}))
