package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const modules = "/usr/lib/uml/modules"

// modprobe loads what a module's name or alias stands for, after all that it needs. The host may have no such program,
// and if so, it would look for modules in a place that cannot be written here.
func modprobe(name string) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	dir := filepath.Join(modules, unix.ByteSliceToString(u.Release[:]))
	dependencies, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return err
	}
	aliases, err := os.ReadFile(filepath.Join(dir, "modules.alias"))
	if err != nil {
		return err
	}
	wanted := []string{underscored(name)}
	for line := range strings.Lines(string(aliases)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "alias" {
			continue
		}
		if matched, _ := path.Match(underscored(f[1]), underscored(name)); matched {
			wanted = append(wanted, underscored(f[2]))
		}
	}
	found := false
	for line := range strings.Lines(string(dependencies)) {
		files := strings.Fields(strings.Replace(line, ":", " ", 1))
		if len(files) == 0 || !slices.Contains(wanted, underscored(strings.TrimSuffix(path.Base(files[0]), ".ko"))) {
			continue
		}
		found = true
		for _, file := range slices.Backward(files) {
			if err := insert(filepath.Join(dir, file)); err != nil {
				return err
			}
		}
	}
	if !found {
		return fmt.Errorf("no module is called %s", name)
	}
	return nil
}

// underscored makes names equal that the kernel takes for equal.
func underscored(name string) string { return strings.ReplaceAll(name, "-", "_") }

func insert(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("loading %s: %w", file, err)
	}
	return nil
}
