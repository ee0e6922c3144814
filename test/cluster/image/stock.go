package image

import (
	"strings"
)

// Names of the images that every node has. They are imported, never pulled.
const (
	PauseName   = "holdfast.test/pause:1"
	BusyboxName = "docker.io/library/busybox:1"
)

// Pause is the image of the container that holds a pod's namespaces.
func Pause(program string) Image {
	return Image{Name: PauseName, Files: []File{{Path: "pause", Mode: 0o755, Source: program}}, Entrypoint: []string{"/pause"}}
}

// Busybox is a small userland: the program, a link for each of its applets as busybox --list names them, and flock.
func Busybox(program, applets, flock string) Image {
	const path = "bin/busybox"
	files := []File{
		{Path: "tmp", Mode: 0o1777},
		{Path: "etc", Mode: 0o755},
		{Path: "root", Mode: 0o700},
		{Path: path, Mode: 0o755, Source: program},
		{Path: "bin/flock", Mode: 0o755, Source: flock},
	}
	for applet := range strings.FieldsSeq(applets) {
		if applet != "busybox" && applet != "flock" { // the list names the program too
			files = append(files, File{Path: "bin/" + applet, Link: "/" + path})
		}
	}
	return Image{Name: BusyboxName, Files: files, Env: []string{"PATH=/bin"}, Cmd: []string{"sh"}}
}
