//go:build !ceph

package main

import (
	"strings"
	"testing"
)

const cephDescription = "name=block,engine=RBD,fsid=11111111-2222-3333-4444-555555555555,monitors=v2:10.0.0.1:3300,v1:10.0.0.2:6789,keyFile=/key,cephPool=p"

func TestCephPool_IsReadByTheProgramOfAnotherImage(t *testing.T) {
	for _, line := range []string{"volumes", "volumes list", "volumes trash", "volumes restore v", "snapshots list"} {
		if _, err := call(t, append(strings.Fields(line), "--pool", cephDescription)...); err == nil || !strings.Contains(err.Error(), "the image holdfast/ceph has one") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestCephPool_DescriptionThatIsWrongIsRefused(t *testing.T) {
	var p hostPools
	if err := p.add(cephDescription + ",secure=true,trashRetention=7d"); err != nil || !p.ceph[0].Ceph.Secure || len(p.ceph[0].Ceph.Monitors) != 2 || p.ceph[0].Ceph.User != "holdfast" {
		t.Errorf("%+v, %v", p.ceph, err)
	}
	for more, says := range map[string]string{
		",cephPool=q":           "given twice",
		",path=/srv":            `unknown key "path"; the keys are: name, engine, fsid`,
		",secure=perhaps":       "not true or false",
		",trashRetention=-1h":   "not a time",
		",v1:10.0.0.3:6789":     "is not key=value",
		",cephFilesystem=files": "no file system",
	} {
		if err := p.add(cephDescription + more); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", more, err)
		}
	}
	if _, err := call(t, "standalone", "--pool", cephDescription); err == nil {
		t.Error("standalone takes it")
	}
}
