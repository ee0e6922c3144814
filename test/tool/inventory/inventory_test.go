package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, texts, err := licencesIn(dir)
	if err != nil || len(texts) != 2 || !slices.Equal(found, []string{"GPL, LGPL or AGPL", "MIT"}) || slices.Contains(allowed, found[0]) {
		t.Errorf("%q %v", found, err)
	}
}

// The program of the test stands for that of a release.
func TestTheSameReleaseHasTheSameBillOfMaterials(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	write := func() []byte {
		dir := t.TempDir()
		for _, program := range []string{"holdfast", "ceph"} {
			if err := os.Symlink(self, filepath.Join(dir, program+"-v1.2.3-linux-arm64")); err != nil {
				t.Fatal(err)
			}
		}
		for _, image := range []string{"holdfast", "nfs", "ceph"} {
			packages := filepath.Join(dir, "packages-"+image+"-arm64")
			if err := os.Mkdir(packages, 0o700); err != nil {
				t.Fatal(err)
			}
			control := "Package: xfsprogs\nVersion: 1:6.1.0-1+b1\nArchitecture: arm64\nDescription: tools\n with more\n"
			if err := os.WriteFile(filepath.Join(packages, "xfsprogs"), []byte(control), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		if err := run([]string{"sbom", "v1.2.3", "1700000000", dir}, &out); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	first := write()
	if !bytes.Equal(first, write()) {
		t.Error("two are different")
	}
	var d document
	if err := json.Unmarshal(first, &d); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, c := range d.Components {
		refs = append(refs, c.Ref)
	}
	for _, want := range []string{"holdfast-linux-arm64", "ceph-linux-arm64", "image-nfs-arm64", "image-ceph-arm64", "pkg:deb/debian/xfsprogs@1%3A6.1.0-1%2Bb1?arch=arm64&distro=debian-12"} {
		if !slices.Contains(refs, want) {
			t.Errorf("%q has no %s", refs, want)
		}
	}
	if !strings.HasPrefix(d.Serial, "urn:uuid:") || d.Metadata.Timestamp != "2023-11-14T22:13:20Z" {
		t.Errorf("its number is %s, its time %s", d.Serial, d.Metadata.Timestamp)
	}
}
