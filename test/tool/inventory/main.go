// Inventory says what a release is made of.
//
//	inventory licences PROGRAM                      fail unless all modules in it have a licence that is allowed
//	inventory notices PROGRAM                       the texts of their licences, which must be given away with it
//	inventory sbom VERSION SECONDS DIRECTORY        of what images/build release has put there, as CycloneDX; SECONDS is its time
package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "licences":
		return checkLicences(args[1], out)
	case len(args) == 2 && args[0] == "notices":
		return writeNotices(args[1], out)
	case len(args) == 4 && args[0] == "sbom":
		return writeSBOM(args[1], args[2], args[3], out)
	}
	return errors.New("usage: inventory licences PROGRAM | notices PROGRAM | sbom VERSION SECONDS DIRECTORY")
}

// checkLicences lists the modules of a program with their licences.
func checkLicences(program string, out io.Writer) error {
	modules, err := modulesOf(program)
	if err != nil {
		return err
	}
	var refused []string
	for _, m := range modules {
		fmt.Fprintln(out, m.path, m.version, strings.Join(m.licences, " "))
		for _, licence := range m.licences {
			if !slices.Contains(allowed, licence) {
				refused = append(refused, fmt.Sprintf("%s %s has the licence %s", m.path, m.version, licence))
			}
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("%s\nallowed are %s: test/tool/inventory/licences.go", strings.Join(refused, "\n"), strings.Join(allowed, ", "))
	}
	return nil
}

func writeNotices(program string, out io.Writer) error {
	modules, err := modulesOf(program)
	if err != nil {
		return err
	}
	for _, m := range modules {
		fmt.Fprintf(out, "== %s %s\n\n%s\n", m.path, m.version, strings.Join(m.texts, "\n"))
	}
	return nil
}

type module struct {
	path, version   string
	licences, texts []string
}

// modulesOf returns what is linked into a program, the standard library first.
func modulesOf(program string) ([]module, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	dirs, err := findDirectories()
	if err != nil {
		return nil, err
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	modules := []module{{path: "std", version: version}}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		modules = append(modules, module{path: dep.Path, version: dep.Version})
	}
	for i, m := range modules {
		if modules[i].licences, modules[i].texts, err = licencesIn(dirs.of(m)); err != nil {
			return nil, fmt.Errorf("%s %s: %w", m.path, m.version, err)
		}
	}
	return modules, nil
}
