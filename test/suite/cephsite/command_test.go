//go:build ceph

package cephsite

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// described is the pool as --pool of a command has it.
func (s *site) described() string {
	c := s.pool.Ceph
	text := "name=" + s.pool.Name + ",engine=" + strings.ToLower(string(s.pool.Engine)) + ",fsid=" + c.FSID + ",monitors=" + strings.Join(c.Monitors, ",") + ",user=" + c.User + ",keyFile=" + s.at("..data/key")
	if s.pool.Engine == v1beta1.EngineRBD {
		return text + ",cephPool=" + c.Pool
	}
	return text + ",cephFilesystem=" + c.Filesystem + ",cephNamespace=" + c.Namespace
}

// command runs the program as an administrator does who has no cluster. A failure is what it prints, too.
func (s *site) command(line string) (string, error) {
	cmd := exec.CommandContext(s.Context(), binary, append(strings.Fields(line), "--pool", s.described())...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + s.dir}
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String() + complaint.String(), err
	}
	if complaint.Len() > 0 && !strings.Contains(line, "restore") { // which says that it cuts off a process
		s.Errorf("%s complains: %s", line, &complaint)
	}
	return out.String(), nil
}

func TestCommands_ReadAndRestoreAPoolWithoutKubernetes(t *testing.T) {
	onBoth(t, func(t *testing.T, engine v1beta1.Engine) {
		s := newSite(t, engine, withTrash)
		if out, err := s.command("volumes list"); err == nil || !strings.Contains(out, "there is no pool of Holdfast") {
			t.Errorf("of a pool that was never served: %v, %s", err, out)
		}
		s.start()
		s.awaitReady()
		kept, gone := s.awaitVolume(s.request("kept").Name, v1beta1.PhaseReady), s.awaitVolume(s.request("gone").Name, v1beta1.PhaseReady)
		s.write(gone, "of the trash")
		snapshot := s.awaitSnapshot(s.requestSnapshot(kept, "s").Name)
		s.requestRemoval(gone)
		s.awaitGone(gone)
		expect := func(line, want string) {
			t.Helper()
			if out, err := s.command(line + " -o name"); err != nil || strings.TrimSpace(out) != want {
				t.Errorf("%s: %v\n%s\nit should be %q", line, err, out, want)
			}
		}
		lists := func() {
			t.Helper()
			expect("volumes list", "volume.holdfast.dev/"+kept.Name)
			expect("volumes trash", gone.Name)
			expect("snapshots list", "snapshot.holdfast.dev/"+snapshot.Name)
		}
		lists()
		if out, err := s.command("volumes restore " + gone.Name); err == nil || !strings.Contains(out, "stop that one") {
			t.Errorf("while a process serves the pool: %v, %s", err, out)
		}
		s.awaitVolume(s.request("more").Name, v1beta1.PhaseReady) // it has the pool as before
		if printed := s.printed(); strings.Contains(printed, "must be taken again") || strings.Contains(printed, "shut this client out") {
			t.Error("a command has taken the pool from its process")
		}
		s.requestRemoval(s.awaitVolume(s.pool.Name+"-more", v1beta1.PhaseReady))
		s.kill()
		s.until("it is restored", func() (bool, string) {
			out, err := s.command("volumes restore " + gone.Name)
			return err == nil && strings.Contains(out, "volume "+gone.Name+" (16Mi) is back in pool "+s.pool.Name), out
		})
		if out, err := s.command("volumes restore none"); err == nil || !strings.Contains(out, "volume none is not in the trash") && !strings.Contains(out, "stop that one") {
			t.Errorf("what is not in the trash: %v, %s", err, out)
		}
		s.start()
		s.expectContent(s.awaitVolume(gone.Name, v1beta1.PhaseReady), "of the trash")
	})
}
