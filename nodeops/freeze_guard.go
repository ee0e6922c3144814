package nodeops

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// guard is a shell that thaws a file system at the end of its standard input, that is when this process dies. A line ends it
// without thawing. It starts no other program before it thaws.
type guard struct {
	cmd   *exec.Cmd
	alive *os.File // our end of its standard input
}

// guardScript prints a line when it is ready, so that nothing is frozen without a guard. It accesses the file system by
// descriptor, since the path may lead elsewhere by then. It exits with 0 only if it did not thaw.
const guardScript = `
echo
read -r line && exit
fsfreeze --unfreeze /proc/self/fd/3
exit 1`

func startGuard(root *os.File) (*guard, error) {
	input, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	cmd, stdout, err := startSession(input, root, "sh", "-c", guardScript, "holdfast-freeze-guard")
	if err != nil {
		alive.Close()
		return nil, fmt.Errorf("starting the freeze guard: %w", err)
	}
	g := &guard{cmd: cmd, alive: alive}
	if _, err := io.ReadFull(stdout, make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("the freeze guard ended at once: %w", errors.Join(err, g.dismiss()))
	}
	return g, nil
}

// dismiss ends the guard. An error means that it had ended before, and so has thawed.
func (g *guard) dismiss() error {
	_, _ = g.alive.WriteString("\n") // if the guard has ended, Wait says why
	g.alive.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("the freeze guard was over: %w", err)
	}
	return nil
}
