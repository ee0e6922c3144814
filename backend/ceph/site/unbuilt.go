//go:build !ceph

package site

import (
	"context"
	"errors"
	"log/slog"
)

var errUnbuilt = errors.New("this program was built without Ceph's libraries (tag ceph, with cgo); the image holdfast/ceph has one that was built with them")

// MetadataVersion is none.
const MetadataVersion = 0

// Open cannot serve a pool here.
func Open(Config, *slog.Logger) (Site, error) { return nil, errUnbuilt }

// Peek cannot read one.
func Peek(context.Context, Config, *slog.Logger) (View, error) { return nil, errUnbuilt }
