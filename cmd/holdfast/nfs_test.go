package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// newNFS is what a command line makes.
func newNFS(t *testing.T, args ...string) *nfs {
	t.Helper()
	flags := pflag.NewFlagSet("nfs", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	n := nfsFlags(flags)
	check.OK(t, flags.Parse(append([]string{"--server=shop/files", "--data=" + t.TempDir()}, args...)))
	return n
}

func TestNFSFlags_ThatCannotServeAreRefused(t *testing.T) {
	for args, says := range map[string]string{
		"--server=":                      "NAMESPACE/NAME",
		"--server=files":                 "NAMESPACE/NAME",
		"--server=/files":                "NAMESPACE/NAME",
		"--server=shop/":                 "NAMESPACE/NAME",
		"--server=shop/files/more":       "NAMESPACE/NAME",
		"--server=shop/a.b":              "NAMESPACE/NAME",
		"--data=data":                    "--data",
		"--run-dir=run":                  "--run-dir",
		"--port=0":                       "1 to 65535",
		"--port=65536":                   "1 to 65535",
		"--publish=/published":           "--publish-name",
		"--publish=/a --publish-name=":   "--publish-name",
		"--server=shop/files --data=.":   "absolute",
		"--server=shop/files --run-dir=": "absolute",
	} {
		err := newNFS(t, strings.Fields(args)...).check()
		if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", args, err)
		}
	}
	n := newNFS(t, "--publish=/published", "--publish-name=docs", "--port=65535", "--engine=Image")
	if err := n.check(); err != nil || n.engine != "image" || n.identity.Namespace != "shop" || n.identity.Name != "files" || n.node() != "shop.files.nfs.holdfast.dev" {
		t.Errorf("of %s it is %v, %s, %s, %v", n.server, n.identity, n.node(), n.engine, err)
	}
}

func TestNFSFlags_AreTheDefaultsOfVolumes(t *testing.T) {
	s, err := newNFS(t).settings()
	if err != nil || s.Squash != "" || s.ReadOnly || len(s.Clients) > 0 || s.AnonUID != nil || s.AnonGID != nil {
		t.Errorf("without flags: %+v, %v", s, err)
	}
	s, err = newNFS(t, "--access=ReadOnly", "--squash=all_squash", "--anon-uid=0", "--anon-gid=4294967294", "--clients=10.0.0.0/8,,fd00::1").settings()
	if err != nil || s.Squash != ganesha.AllSquash || !s.ReadOnly || *s.AnonUID != 0 || *s.AnonGID != 4294967294 || !slices.Equal(s.Clients, []string{"10.0.0.0/8", "fd00::1"}) {
		t.Errorf("with all: %+v, %v", s, err)
	}
	if s, err := newNFS(t, "--access=None").settings(); err != nil || s.ReadOnly {
		t.Errorf("without access: %+v, %v", s, err)
	}
	for args, says := range map[string]string{
		"--access=rw": "ReadWrite, ReadOnly or None", "--access=": "ReadWrite", "--anon-uid=-1": "--anon-uid", "--anon-gid=staff": "--anon-gid", "--anon-uid=4294967296": "4294967294",
	} {
		if _, err := newNFS(t, args).settings(); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// puts is an exporter that keeps the last export.
type puts struct{ last ganesha.Export }

func (p *puts) Put(_ context.Context, e ganesha.Export) error { p.last = e; return nil }
func (*puts) Remove(context.Context, uint16) error            { return nil }

func TestNFSFlags_WithoutAccessNoClientMayMountAnyVolume(t *testing.T) {
	var received puts
	for _, clients := range [][]string{nil, {"10.0.0.0/8"}} {
		check.OK(t, (shut{&received}).Put(t.Context(), ganesha.Export{ID: 7, Clients: clients}))
		if received.last.ID != 7 || !slices.Equal(received.last.Clients, []string{loopback}) {
			t.Errorf("of %v it is %+v", clients, received.last)
		}
	}
}

func TestNFS_ServerKeepsItsNameAsLongAsItsData(t *testing.T) {
	name := func(n *nfs) string {
		t.Helper()
		return check.Got(n.lastingName())(t)
	}
	one, two := newNFS(t), newNFS(t)
	first := name(one)
	if !strings.HasPrefix(first, "shop.files.") || name(one) != first || name(two) == first {
		t.Errorf("it is %s, then %s; with other data %s", first, name(one), name(two))
	}
	if err := os.Truncate(filepath.Join(one.data, "server", "id"), 0); err != nil { // by a disk that was full
		t.Fatal(err)
	}
	if again := name(one); again == first || name(one) != again {
		t.Errorf("after its loss it is %s, then %s", again, name(one))
	}
	check.OK(t, os.WriteFile(filepath.Join(two.data, "file"), nil, 0o600))
	two.data = filepath.Join(two.data, "file")
	if name, err := two.lastingName(); err == nil {
		t.Errorf("without a directory it is %s", name)
	}
}

func TestNFS_ServerThatPublishesAgainKeepsItsNameWhereverItRuns(t *testing.T) {
	args := []string{"--publish=/published", "--publish-name=docs", "--uid=0b5e7c1e-6a0f-4a52-9d57-1c1c0c5a3f10"}
	here, err := newNFS(t, args...).lastingName()
	there, errThere := newNFS(t, args...).lastingName()
	if err != nil || errThere != nil || here != there || !strings.Contains(here, "0b5e7c1e") {
		t.Errorf("it is %s (%v), then %s (%v)", here, err, there, errThere)
	}
	other, err := newNFS(t, "--publish=/published", "--publish-name=docs", "--uid=ffff").lastingName()
	if err != nil || other == here {
		t.Errorf("another of the name is %s, %v", other, err)
	}
	config := ganesha.Config{RunDir: "/run/x", RecoveryDir: "/run/y", Name: v1beta1.NodeOfServer(strings.Repeat("n", 63)+"/"+strings.Repeat("s", 48)) + ".0b5e7c1e-6a0f-4a52-9d57-1c1c0c5a3f10"}
	if _, err := ganesha.New(config); err != nil {
		t.Errorf("the longest is refused: %v", err)
	}
}
