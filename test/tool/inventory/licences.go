package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// allowed are the licences, by their names in SPDX, of what may be linked into a program that is given away under Apache-2.0.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)
	// The words by which a licence is known, in lower case and with one space between them.
	phrases = []struct{ licence, phrase string }{
		{"Apache-2.0", "apache license version 2.0"},
		{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose"},
		{"ISC", "permission to use, copy, modify, and distribute this software for any purpose"},
		{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
		{"MPL-2.0", "mozilla public license"},
		{"GPL, LGPL or AGPL", "gnu general public license"},
		{"GPL, LGPL or AGPL", "gnu lesser general public license"},
		{"GPL, LGPL or AGPL", "gnu affero general public license"},
		{"EPL", "eclipse public license"},
	}
)

// directories is where the sources of modules are.
type directories struct{ goroot, cache string }

func findDirectories() (directories, error) {
	out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return directories{}, err
	}
	lines := strings.Split(string(out), "\n")
	return directories{lines[0], lines[1]}, nil
}

// of returns the directory of a module: in the cache, "!x" stands for "X".
func (d directories) of(m module) string {
	if m.path == "std" {
		return d.goroot
	}
	var escaped strings.Builder
	for _, r := range m.path + "@" + m.version {
		if unicode.IsUpper(r) {
			escaped.WriteByte('!')
		}
		escaped.WriteRune(unicode.ToLower(r))
	}
	return filepath.Join(d.cache, escaped.String())
}

// licencesIn returns the licences of all files in a directory that have one, and their texts.
func licencesIn(dir string) (found, texts []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range entries {
		if entry.IsDir() || !licenceFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, nil, err
		}
		found, texts = append(found, classify(string(text))...), append(texts, string(text))
	}
	if len(found) == 0 {
		return nil, nil, errors.New("no file with a licence is there")
	}
	slices.Sort(found)
	return slices.Compact(found), texts, nil
}

// classify returns every licence that a text has, or "unknown".
func classify(text string) []string {
	text = strings.ToLower(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == '#' || r == '*' }), " "))
	var found []string
	for _, p := range phrases {
		if strings.Contains(strings.ReplaceAll(text, "license, version", "license version"), p.phrase) {
			found = append(found, p.licence)
		}
	}
	if strings.Contains(text, "redistribution and use in source and binary forms") {
		if strings.Contains(text, "endorse or promote") {
			found = append(found, "BSD-3-Clause")
		} else {
			found = append(found, "BSD-2-Clause")
		}
	}
	if len(found) == 0 {
		found = []string{"unknown"}
	}
	return found
}
