// Values writes what the values of the Helm chart may be, as the CRD of the StorageCluster says it.
//
//	values CRD
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(crd string) error {
	document, err := values(crd)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(document)
}
