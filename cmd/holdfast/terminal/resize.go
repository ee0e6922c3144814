//go:build !windows

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// resizes are the signals of a terminal that gets another size.
var resizes = []os.Signal{unix.SIGWINCH}
