// Command broken is a release that says which version it is, as every upgrade asks, and does not work on a node.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "version" {
		fmt.Println(`{"version":"broken","metadata":{"writes":1,"reads":1000}}`)
		return
	}
	panic("this release does not work")
}
