package driver

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// directoryAttachment is of a directory on this host. Its limit is that of the volume already.
type directoryAttachment struct {
	hostFS
	info os.FileInfo
}

func (d directoryAttachment) is(m *nodeops.Mount) bool {
	if !inEntry(m.Root, d.v.ID) {
		return false // and is not touched: a stranger's mount may hang
	}
	info, err := os.Stat(m.Target)
	return err == nil && os.SameFile(info, d.info)
}

func (d directoryAttachment) mount(ctx context.Context, a access, target string) error {
	for _, flag := range a.flags {
		if !slices.Contains(mountFlags, flag) && flag != "ro" && flag != "rw" {
			name, _, _ := strings.Cut(flag, "=")
			return fmt.Errorf("%w: volume %s is a directory, to which mount flag %s cannot apply; these can: ro, rw, %s",
				backend.ErrInvalid, d.v.ID, backend.Quote(name), strings.Join(mountFlags, ", "))
		}
	}
	if err := nodeops.Bind(ctx, d.v.Access.Directory, target, a.readOnly(), a.bindFlags()); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.StageMounted)
	return nil
}
