package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestEveryLicenceOfATextIsFound(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Apache License\n  Version 2.0, January 2004", "Apache-2.0"},
		{"Licensed under the Apache License, Version 2.0; parts are\n# Permission is hereby granted, free of\n# charge, to any person obtaining a copy", "Apache-2.0 MIT"},
		{"Redistribution and use in source and binary\nforms, with or without", "BSD-2-Clause"},
		{"Redistribution and use in source and binary forms ... to endorse or promote", "BSD-3-Clause"},
		{"GNU LESSER GENERAL PUBLIC LICENSE Version 3", "GPL, LGPL or AGPL"},
		{"All rights reserved.", "unknown"},
	} {
		if got := strings.Join(classify(c.text), " "); got != c.want {
			t.Errorf("%q has the licence %s, not %s", c.text, got, c.want)
		}
	}
}

func TestADirectoryWithoutALicenceIsRefused(t *testing.T) {
	if found, _, err := licencesIn(t.TempDir()); err == nil {
		t.Errorf("it has %q", found)
	}
}

func TestADirectoryWithALicenceThatIsNotAllowedSaysSo(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"LICENSE": "Permission is hereby granted, free of charge, to any person obtaining a copy", "COPYING.txt": "GNU General Public License"} {
		check.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	found, texts, err := licencesIn(dir)
	if err != nil || len(texts) != 2 || !slices.Equal(found, []string{"GPL, LGPL or AGPL", "MIT"}) || slices.Contains(allowed, found[0]) {
		t.Errorf("%q %v", found, err)
	}
}
