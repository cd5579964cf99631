"""The self-test of a checker: faults planted one at a time in a sound tree, each of which must be found as what it is."""
import os
import tempfile


def expect_found(name, check, sound, faults, tolerated=()):
    """Prints what went wrong and a summary; returns the exit code.

    check      a folder -> its problems, each a line that begins with its kind
    sound      path -> text of a tree without problems
    faults     (kind, path -> text that replaces or joins the sound tree)
    tolerated  kinds that another kind's fault may raise as well
    """
    def problems(files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(text)
            return check(root)

    wrong = ["a sound tree was refused: " + p for p in problems(sound)]
    for kind, files in faults:
        found = {p.split()[0] for p in problems({**sound, **files})}
        if kind not in found or found - {kind, *tolerated}:
            wrong.append("a planted '%s' fault in %s raised %s" % (kind, next(iter(files)), sorted(found) or "nothing"))
    for line in wrong:
        print(line)
    print("%s: self-test: %d faults planted, %s" % (name, len(faults), "all found" if not wrong else "FAILED"))
    return 1 if wrong else 0
