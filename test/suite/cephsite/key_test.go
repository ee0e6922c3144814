//go:build ceph

package cephsite

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// nobodysKey has the form of a key.
const nobodysKey = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="

func TestKey_ThatIsWrongIsReportedAndMendedWithoutARestart(t *testing.T) {
	onBoth(t, func(t *testing.T, engine v1beta1.Engine) {
		s := newSite(t, engine)
		s.writeKey(nobodysKey)
		s.start()
		v := s.request("a")
		s.awaitPool("refuses client."+s.pool.Ceph.User, "write its key into the secret")
		if status, body := s.probe("/readyz"); status != http.StatusInternalServerError || !strings.Contains(body, "refuses client."+s.pool.Ceph.User) {
			t.Errorf("/readyz: %d %s", status, body)
		}
		if status, body := s.probe("/livez"); status != http.StatusOK {
			t.Errorf("/livez: %d %s", status, body)
		}
		s.writeKey(s.key(s.pool.Ceph.User))
		s.awaitPool()
		s.awaitVolume(v.Name, v1beta1.PhaseReady)
		if printed := s.printed(); strings.Contains(printed, nobodysKey) || strings.Contains(printed, s.key(s.pool.Ceph.User)) {
			t.Error("a key was printed")
		}
	})
}

// rotate gives the user of the pool another key in Ceph.
func (s *site) rotate() {
	s.Helper()
	user := s.pool.Ceph.User
	key := check.Got(small.Command(s.Context(), "ceph-authtool", "--gen-print-key"))(s)
	keyring := fmt.Sprintf("[client.%s]\n\tkey = %s\n", user, key)
	caps := userCaps(s.pool.Engine, user)
	for i := 0; i < len(caps); i += 2 {
		keyring += fmt.Sprintf("\tcaps %s = %q\n", caps[i], caps[i+1])
	}
	check.OK(s, os.WriteFile(s.at("keyring"), []byte(keyring), 0o600))
	check.Got(small.Ceph(s.Context(), "auth", "import", "-i", s.at("keyring")))(s)
}

// connections counts those of the user of the pool to the monitor.
func (s *site) connections() (n int) {
	s.Helper()
	text := check.Got(small.Ceph(s.Context(), "--admin-daemon", filepath.Join(small.Dir, "mon.a.asok"), "sessions"))(s)
	var sessions []struct {
		Entity string `json:"entity_name"`
	}
	if err := json.Unmarshal([]byte(text), &sessions); err != nil {
		s.Fatal(text, err)
	}
	for _, one := range sessions {
		if one.Entity == "client."+s.pool.Ceph.User {
			n++
		}
	}
	return n
}

func TestKey_IsRotatedWithoutARestart(t *testing.T) {
	onBoth(t, func(t *testing.T, engine v1beta1.Engine) {
		s := newSite(t, engine)
		s.start()
		s.awaitReady()
		s.awaitVolume(s.request("a").Name, v1beta1.PhaseReady)
		before := s.connections()
		if before == 0 {
			t.Fatal("the process has no connection")
		}
		s.rotate()
		var during []*v1beta1.Volume
		for i := range 5 {
			during = append(during, s.request(fmt.Sprint("during", i)))
			if i == 2 {
				s.writeKey(s.key(s.pool.Ceph.User))
			}
		}
		s.until("the connection is replaced", func() (bool, string) {
			return strings.Contains(s.printed(), "the connection to Ceph is replaced"), "nothing is said of it"
		})
		for _, v := range during {
			s.awaitVolume(v.Name, v1beta1.PhaseReady)
		}
		s.awaitReady()
		s.awaitVolume(s.request("after").Name, v1beta1.PhaseReady)
		s.awaitPool()
		if all := s.inCeph(); len(all) != 7 {
			t.Errorf("in Ceph there is %q", all)
		}
		s.until("the old connection is closed", func() (bool, string) {
			now := s.connections()
			return now <= before, fmt.Sprintf("there are %d, and were %d", now, before)
		})
		if printed := s.printed(); strings.Contains(printed, "cannot be used") {
			t.Error("the pool was out of reach during that")
		}
		s.writeKey(nobodysKey)
		s.until("a wrong key is reported", func() (bool, string) {
			_, body := s.probe("/readyz")
			return strings.Contains(body, "refuses client."), body
		})
		s.awaitVolume(s.request("still").Name, v1beta1.PhaseReady)
		s.until("its StorageNode warns of the key, and is ready", func() (bool, string) {
			conditions := s.storageNode().Status.Conditions
			c := meta.FindStatusCondition(conditions, v1beta1.KeyRefusedCondition)
			return c != nil && strings.Contains(c.Message, "refuses client.") && meta.IsStatusConditionTrue(conditions, v1beta1.ReadyCondition), fmt.Sprint(conditions)
		})
		s.awaitPool()
		s.writeKey(s.key(s.pool.Ceph.User))
		s.until("the warning is gone", func() (bool, string) {
			conditions := s.storageNode().Status.Conditions
			return meta.IsStatusConditionFalse(conditions, v1beta1.KeyRefusedCondition), fmt.Sprint(conditions)
		})
	})
}

// As the operator replaces the pod of a pool whose user is changed.
func TestUser_ThatCephRefusesDoesNotGetThePoolOfAnotherProcess(t *testing.T) {
	onBoth(t, func(t *testing.T, engine v1beta1.Engine) {
		s := newSite(t, engine)
		s.start()
		s.awaitReady()
		s.awaitVolume(s.request("a").Name, v1beta1.PhaseReady)
		wrong := s.beside("--user=nosuchuser")
		if err := <-wrong.ended; err == nil {
			t.Error("it ends without an error")
		}
		wrong.cmd = nil
		for _, part := range []string{"refuses client.nosuchuser", "`ceph auth get-or-create client.nosuchuser ", "which serves it"} {
			if !strings.Contains(wrong.printed(), part) {
				t.Errorf("it does not say %q, but:\n%s", part, wrong.printed())
			}
		}
		s.awaitPool()
		s.awaitVolume(s.request("b").Name, v1beta1.PhaseReady)

		next := s.beside()
		next.awaitReady()
		s.awaitVolume(s.request("c").Name, v1beta1.PhaseReady)
		if printed := s.printed(); strings.Contains(printed, "cannot be used") || strings.Contains(printed, "is replaced") {
			t.Errorf("the process that serves the pool was disturbed:\n%s", printed)
		}
		check.OK(t, s.stop())
		next.until("it serves the pool", func() (bool, string) {
			return strings.Contains(next.printed(), "the pool can be used"), next.printed()
		})
		s.awaitVolume(s.request("d").Name, v1beta1.PhaseReady)
		if all := s.inCeph(); len(all) != 4 {
			t.Errorf("in Ceph there is %q", all)
		}
	})
}

func TestNodeUser_ThatIsRefusedIsReportedWhileVolumesAreMade(t *testing.T) {
	onBoth(t, func(t *testing.T, engine v1beta1.Engine) {
		s := newSite(t, engine)
		s.writeNodeKey(nobodysKey)
		s.start()
		s.awaitReady()
		s.awaitVolume(s.request("a").Name, v1beta1.PhaseReady)
		says := func(status metav1.ConditionStatus, parts ...string) {
			t.Helper()
			s.until(fmt.Sprintf("%s is %s and says %q", v1beta1.NodeUserRefusedCondition, status, parts), func() (bool, string) {
				c := meta.FindStatusCondition(s.storageNode().Status.Conditions, v1beta1.NodeUserRefusedCondition)
				return c != nil && c.Status == status && !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(c.Message, p) }), fmt.Sprint(c)
			})
			s.awaitPool()
		}
		says(metav1.ConditionTrue, "refuses client."+s.pool.Ceph.NodeUser, "the secret of nodeSecretRef")
		caps := nodeCaps(engine, s.pool.Name)
		s.setCaps(s.pool.Ceph.NodeUser, caps[:len(caps)-2]...) // but for the data
		s.writeNodeKey(s.key(s.pool.Ceph.NodeUser))
		says(metav1.ConditionTrue, "has too small caps", "`ceph auth caps client."+s.pool.Ceph.NodeUser+" mon ")
		s.setCaps(s.pool.Ceph.NodeUser, caps...)
		says(metav1.ConditionFalse)
		if printed := s.printed(); strings.Contains(printed, nobodysKey) || strings.Contains(printed, s.key(s.pool.Ceph.NodeUser)) {
			t.Error("a key was printed")
		}
	})
}
