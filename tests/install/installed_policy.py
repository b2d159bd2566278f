"""Programs of the tests of libtroop_policy, and its installation from a build folder."""
import subprocess


def run(*command, **options):
    """The output of a program. Raises AssertionError: it failed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise AssertionError(f"{command} ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def install(cmake, build, prefix):
    """Installs the library. The list of files that CMake leaves in the build folder is removed."""
    run(cmake, "--install", build, "--component", "policy", "--prefix", prefix)
    (build / "install_manifest_policy.txt").unlink()
