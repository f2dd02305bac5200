# SPDX-License-Identifier: Apache-2.0
"""The parts of compare_engines.py. Standard library only, apart from the
programs that run in bench's own environment: *_worker.py, read_bandwidth.py."""
