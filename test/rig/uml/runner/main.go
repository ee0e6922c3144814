// Command runner is what a User Mode Linux machine of package uml needs around it, as one static file: the process on
// the host that becomes the machine, or ends it with its owner, the machine's first process, and the loader of modules that the
// machine's kernel calls.
package main

import (
	"fmt"
	"os"
)

// machineDir is a variable that the machine's kernel hands to its first process, as it does with all arguments that it
// does not know.
const machineDir = "HOLDFAST_UML"

func main() {
	var err error
	switch {
	case os.Getenv(machineDir) != "":
		err = guest()
	case len(os.Args) > 3 && os.Args[1] == "keep":
		err = keep(os.Args[2], os.Args[3:])
	case len(os.Args) > 3 && os.Args[1] == "boot":
		err = boot(os.Args[2], os.Args[3:])
	case len(os.Args) > 3 && os.Args[1] == "boot-in-session":
		err = bootInSession(os.Args[2], os.Args[3:])
	case len(os.Args) == 4 && os.Args[1] == "-q": // as the kernel calls: modprobe -q -- NAME
		err = modprobe(os.Args[3])
	case len(os.Args) == 2: // as iptables calls
		err = modprobe(os.Args[1])
	default:
		err = fmt.Errorf("unknown arguments %q", os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1) // what the kernel called may be tried under another name
	}
}
