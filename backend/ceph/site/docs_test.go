//go:build ceph

package site

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// The users of all tests here have these caps and no others.
func TestDocs_GiveBothUsersTheCapsThatAreTested(t *testing.T) {
	page := check.Got(os.ReadFile("../../../docs/ceph.md"))(t)
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(page), "\\\n", " ")), " ")
	users := ceph.Config{User: "holdfast", NodeUser: "holdfast-node"}
	images, files, apart, wide := users, users, users, users
	images.Pool, files.FileSystem = "holdfast", "cephfs"
	ownImages, ownFiles := images, files
	ownImages.NodeUser, ownFiles.NodeUser = "holdfast-node.block.", "holdfast-node.files."
	apart.Pool, apart.Namespace = "holdfast", "NAMESPACE"
	wide.Pool, wide.DataPool = "holdfast", "DATAPOOL"
	of := func(engine string, c ceph.Config) *pool { return &pool{Config: Config{Engine: engine, Ceph: c}} }
	for _, said := range []string{
		of(RBD, images).maker().grant("get-or-create"), of(RBD, images).mounter().grant("get-or-create"),
		of(RBD, ownImages).maker().grant("get-or-create"), of(CephFS, ownFiles).maker().grant("get-or-create"),
		of(CephFS, files).maker().grant("get-or-create"), of(CephFS, files).mounter().grant("get-or-create"),
		"osd '" + of(RBD, apart).mounter().caps["osd"] + "'", "osd '" + of(RBD, wide).maker().caps["osd"] + "'",
	} {
		if !strings.Contains(text, said) {
			t.Errorf("docs/ceph.md does not have %s", said)
		}
	}
}
