//go:build !ceph

package site

import (
	"errors"
	"log/slog"
)

// Open cannot serve a pool here.
func Open(Config, *slog.Logger) (Site, error) {
	return nil, errors.New("this program was built without Ceph's libraries (tag ceph, with cgo); the image holdfast/ceph has one that was built with them")
}
