// Command broken is a release that says which version it is, as every upgrade asks, and does not work on a node. The
// variable BROKEN of its image says how: exits, or hangs.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "version" {
		fmt.Println(`{"version":"broken","metadata":{"writes":1,"reads":1000}}`)
		return
	}
	if os.Getenv("BROKEN") == "exits" {
		panic("this release does not work")
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	<-asked
}
