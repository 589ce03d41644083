"""A rank that forks while it is recorded: children that leave by sys.exit, are ended at once, or import torch first."""

import multiprocessing
import os
import sys
import time

early = os.fork()
if early == 0:
    import torch  # before the parent does

    sys.exit(7)

import torch  # noqa: E402


def wait_for_the_end() -> None:
    time.sleep(60)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fork_one_that_leaves() -> int:
    child = os.fork()
    if child == 0:
        sys.exit(5)
    return exit_code(child)


def fork_one_that_is_ended() -> int | None:
    child = multiprocessing.get_context("fork").Process(target=wait_for_the_end)
    child.start()
    child.terminate()
    child.join(20)
    return child.exitcode


weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.5)
for step in range(9):
    if step == 3:
        print(exit_code(early), fork_one_that_leaves(), fork_one_that_is_ended(), flush=True)
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
