package nodeops

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// guard is a shell that thaws a file system at the end of its standard input, that is when this process dies, or when
// the time limit that starts with the first byte is over. A second byte ends it without thawing.
type guard struct {
	cmd   *exec.Cmd
	alive *os.File // our end of its standard input
}

// guardScript prints a line when it is ready, so that nothing is frozen without a guard. It accesses the file system by
// descriptor, since the path may lead elsewhere by then. It exits with 0 only if it did not thaw.
const guardScript = `
echo
word=$(dd bs=1 count=1 2>/dev/null)
[ "$word" = f ] && word=$(timeout "$1" dd bs=1 count=1 2>/dev/null)
[ "$word" = x ] && exit
fsfreeze --unfreeze /proc/self/fd/3
exit 1`

func startGuard(root *os.File, limit time.Duration) (*guard, error) {
	input, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	seconds := strconv.FormatFloat(limit.Seconds(), 'f', 3, 64)
	cmd, stdout, err := startSession(input, root, "sh", "-c", guardScript, "holdfast-freeze-guard", seconds)
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

// begin starts the time limit, after the freeze: a guard whose limit ends earlier would thaw nothing and exit.
func (g *guard) begin() error {
	_, err := g.alive.WriteString("f")
	return err
}

// dismiss ends the guard. An error means that it had ended before, and so has thawed.
func (g *guard) dismiss() error {
	_, _ = g.alive.WriteString("x") // if the guard has ended, Wait says why
	g.alive.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("the freeze guard was over: %w", err)
	}
	return nil
}
