//go:build ceph

package ceph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ceph/go-ceph/rados"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// addressOf is by which a cluster knows a client. Several protocols have the same.
func addressOf(t *testing.T, conn *rados.Conn) string {
	t.Helper()
	text := check.Got(conn.GetAddrs())(t)
	first, _, _ := strings.Cut(strings.Trim(text, "[]"), ",")
	for _, protocol := range []string{"v1:", "v2:", "any:"} {
		first = strings.TrimPrefix(first, protocol)
	}
	return first
}

func entries(n int, until time.Time) []byte {
	var all []map[string]string
	for i := range n {
		all = append(all, map[string]string{"addr": fmt.Sprintf("10.0.0.5:0/%d", i+1), "until": until.UTC().Format("2006-01-02T15:04:05.000000-0700")})
	}
	all = append(all, map[string]string{"addr": "10.0.0.6:0/0", "until": "2099-01-01T00:00:00.000000+0000"}, map[string]string{"addr": "10.0.0.6:6800/12", "until": "2099-01-01T00:00:00.000000+0000"})
	text, _ := json.Marshal(all) // of strings
	return append(text, `[{"addr":"10.0.0.0:0/24","until":"2099-01-01T00:00:00.000000+0000"}]`...)
}

func TestBlocklist_OnlyWhatLastsLongEnoughIsRead(t *testing.T) {
	until := time.Now()
	if got, err := blocklisted(entries(2, until.Add(time.Second)), until); err != nil || !slices.Equal(got, []string{"10.0.0.5:0/1", "10.0.0.5:0/2"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := blocklisted(entries(2, until.Add(-time.Second)), until); err != nil || len(got) > 0 {
		t.Errorf("what ends soon: %v, %v", got, err)
	}
	for _, text := range []string{"", "{}", `[{"addr":"10.0.0.5:0/1","until":"soon"}]`} {
		if got, err := blocklisted([]byte(text), until); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestBlocklist_TakesOneClientAndNeverAHost(t *testing.T) {
	b := BlocklistOf(connected(t, valid()))
	for _, address := range []string{"", "10.0.0.5", "10.0.0.5:0", "10.0.0.5:0/0", "10.0.0.5:0/01", "10.0.0.5:6800/12", "10.0.0.0/24", "a:0/1", "10.0.0.5:0/1 x", "10.0.0.5:0/-1"} {
		if err := b.Fence(t.Context(), []string{address}); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "IP:0/NUMBER") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func write(object, text string) func(*rados.Conn) (any, error) {
	return func(conn *rados.Conn) (any, error) {
		io, err := conn.OpenIOContext("blocklist")
		if err != nil {
			return nil, err
		}
		defer io.Destroy()
		return nil, io.WriteFull(object, []byte(text))
	}
}

// temporaryPool ends with the test: the cluster is not healthy with one that has objects of no application.
func temporaryPool(t *testing.T, name string) {
	t.Helper()
	check.OK(t, small.CreatePool(t.Context(), name))
	t.Cleanup(func() {
		check.Report(t, small.DeletePool(context.Background(), name))
	})
}

func TestBlocklist_ClientThatIsShutOutWritesNothingMore(t *testing.T) {
	config := configOf(t, "admin")
	temporaryPool(t, "blocklist")
	config.Pool = "blocklist"
	lost, other := connected(t, config), connected(t, config)
	put := func(c *Cluster, object, text string) error {
		_, err := Call(t.Context(), c, "write", write(object, text))
		return err
	}
	check.OK(t, put(lost, "a", "before"))
	address, err := Call(t.Context(), lost, "address", func(conn *rados.Conn) (string, error) { return addressOf(t, conn), nil })
	check.OK(t, err)
	b := BlocklistOf(other)
	for range 2 { // it may be repeated
		check.OK(t, b.Fence(t.Context(), []string{address}))
	}
	if has, err := b.Fenced(t.Context()); err != nil || !slices.Contains(has, address) {
		t.Errorf("%s is not listed: %v, %v", address, has, err)
	}
	for i := range 64 { // in all placement groups, in which no other client has written since
		if err := put(lost, fmt.Sprint("b", i), "too late"); !errors.Is(err, unix.ESHUTDOWN) {
			t.Errorf("the client that is shut out wrote to the object %d: %v", i, err)
		}
	}
	check.OK(t, put(other, "a", "after"))
	if err := put(lost, "a", "too late"); !errors.Is(err, unix.ESHUTDOWN) {
		t.Errorf("the client that is shut out wrote: %v", err)
	}
	text, err := Call(t.Context(), other, "read", func(conn *rados.Conn) (string, error) {
		io, err := conn.OpenIOContext("blocklist")
		if err != nil {
			return "", err
		}
		defer io.Destroy()
		content := make([]byte, 64)
		n, err := io.Read("a", content, 0)
		return string(content[:n]), err
	})
	if err != nil || text != "after" {
		t.Errorf("there is %q, %v", text, err)
	}
	for range 2 {
		check.OK(t, b.Unfence(t.Context(), []string{address}))
	}
	if has, err := b.Fenced(t.Context()); err != nil || slices.Contains(has, address) {
		t.Errorf("%s is still listed: %v, %v", address, has, err)
	}
}

func TestPlacement_IsThatOfTheCluster(t *testing.T) {
	temporaryPool(t, "placed")
	b := BlocklistOf(connected(t, configOf(t, "admin")))
	groups := check.Got(b.groups(t.Context(), "placed"))(t)
	for _, namespace := range []string{"", "tenant"} {
		for group, name := range nameInEach(namespace, groups) {
			check.Report(t, b.checkPlacement(t.Context(), "placed", namespace, name))
			command := map[string]string{"prefix": "osd map", "pool": "placed", "object": name, "nspace": namespace}
			if namespace == "" {
				delete(command, "nspace")
			}
			var is struct {
				Group string `json:"pgid"`
			}
			check.OK(t, Ask(t.Context(), b.cluster, command, &is))
			if _, at, _ := strings.Cut(is.Group, "."); at != strconv.FormatInt(int64(group), 16) {
				t.Errorf("%s of namespace %q is in %s, not in group %x", name, namespace, is.Group, group)
			}
		}
	}
}

func TestBlocklist_CapsThatDoNotAllowItAreNamed(t *testing.T) {
	config := configOf(t, "admin")
	for user, test := range map[string]struct {
		caps         string
		fence, clear bool
	}{
		"reader":  {"allow r", false, false},
		"profile": {"profile rbd", true, false},
		"keeper":  {`profile rbd, allow command "osd blocklist"`, true, true},
	} {
		key := check.Got(small.CreateUser(t.Context(), user, "mon", test.caps))(t)
		config.User, config.Key = user, Key(key)
		b := BlocklistOf(connected(t, config))
		address := "10.9.9.9:0/4711"
		expect := func(what string, may bool, err error) {
			if may != (err == nil) || !may && !strings.Contains(err.Error(), "client."+user+" may not do this") {
				t.Errorf("%s with %s: %v", what, test.caps, err)
			}
		}
		expect("fence", test.fence, b.Fence(t.Context(), []string{address}))
		expect("unfence", test.clear, b.Unfence(t.Context(), []string{address}))
		if _, err := b.Fenced(t.Context()); err != nil {
			t.Errorf("listing with %s: %v", test.caps, err)
		}
	}
}

func TestBlocklist_OSDsThatDoNotAnswerConfirmNothing(t *testing.T) {
	config := configOf(t, "admin")
	temporaryPool(t, "unanswered")
	config.Pool, config.Patience = "unanswered", time.Second
	b := BlocklistOf(connected(t, config))
	check.Got(b.Fenced(t.Context()))(t)
	check.OK(t, small.Pause(rig.OSD))
	defer func() {
		check.Report(t, errors.Join(small.Resume(rig.OSD), small.AwaitHealthy(context.Background())))
	}()
	err := b.Fence(t.Context(), []string{"10.9.9.9:0/4712"})
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "placement groups of pool unanswered") {
		t.Errorf("got %v", err)
	}
}
