"""Processes that are killed before a system call of their own choosing."""

import os
import signal
import sys

# What Python tells of before it asks the system to change files.
CALLS = ("open", "os.", "shutil.", "tempfile.", "fcntl.")


def killed_at(at, work):
    """Do some work in a child that kills itself before system call number `at`.

    Returns whether it came to that.  The child has one thread and leaves by `os._exit`.
    """
    child = os.fork()
    if child == 0:
        left = at

        def hook(event, arguments):
            nonlocal left
            if event.startswith(CALLS):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(hook)
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the work failed"
    return False
