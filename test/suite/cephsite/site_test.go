//go:build ceph

package cephsite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/nodeops/child"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

// patience is far more than anything here takes, also on a machine of which others have most.
const patience = 5 * time.Minute

var count atomic.Int32

// site is a pool of a StorageCluster, and the process that serves it.
type site struct {
	testing.TB
	pool     v1beta1.PoolSpec
	node     string
	dir      string
	address  string
	args     []string
	holdfast holdfast.Interface // as the controller

	mu     sync.Mutex
	output bytes.Buffer
	cmd    *exec.Cmd
	ended  <-chan error
}

// newSite makes a pool with users of its own, and what the operator makes of it; change may have another one.
func newSite(t testing.TB, engine v1beta1.Engine, change ...func(*v1beta1.PoolSpec)) *site {
	t.Helper()
	rig.Require(t)
	config := realapi.Config(t)
	name := fmt.Sprintf("pool%d", count.Add(1))
	s := &site{TB: t, dir: t.TempDir(), pool: v1beta1.PoolSpec{Name: name, Engine: engine, TrashRetention: new(v1beta1.Duration("0s")), Ceph: &v1beta1.CephSpec{
		FSID: small.FSID, Monitors: []string{"v2:" + small.Monitor}, User: name, NodeUser: name + "-node",
		SecretRef: v1beta1.CephSecretReference{Name: name}, NodeSecretRef: v1beta1.CephSecretReference{Name: name + "-node"},
	}}}
	s.prepare()
	for _, c := range change {
		c(&s.pool)
	}
	s.node = v1beta1.NodeOfCephPool(name)
	controller := rest.CopyConfig(config)
	controller.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + realapi.Namespace + ":" + v1beta1.ControllerName, Groups: []string{"system:masters"}}
	s.holdfast = holdfast.NewForConfigOrDie(controller)
	s.forget() // what a run that was killed has left
	s.args = s.install(config)
	s.writeKey(s.key(s.pool.Ceph.UserName()))
	s.writeNodeKey(s.key(s.pool.Ceph.NodeUserName()))
	s.writeKubeconfig(realapi.WithToken(t, config, realapi.Namespace, "holdfast-ceph-"+name, ""))
	t.Cleanup(func() {
		s.kill()
		s.forget()
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, s.printed())
		}
	})
	return s
}

// prepare makes the place in Ceph and the users, with the caps that docs/ceph.md says.
func (s *site) prepare() {
	s.Helper()
	ctx, c := context.Background(), s.pool.Ceph
	user, node := userCaps(s.pool.Engine, c.User), nodeCaps(s.pool.Engine, c.User)
	if s.pool.Engine == v1beta1.EngineRBD {
		c.Pool = s.pool.Name
		check.OK(s, small.CreateRBDPool(ctx, c.Pool, 0))
		s.Cleanup(func() { _ = small.DeletePool(ctx, c.Pool) })
	} else {
		c.Filesystem, c.Namespace = rig.FileSystem, s.pool.Name
	}
	for name, caps := range map[string][]string{c.User: user, c.NodeUser: node} {
		check.Got(small.CreateUser(ctx, name, caps...))(s)
	}
}

// userCaps and nodeCaps are those of docs/ceph.md, of a pool of images or a subvolume group of that name.
func userCaps(engine v1beta1.Engine, name string) []string {
	if engine == v1beta1.EngineRBD {
		return []string{"mon", `profile rbd, allow command "osd blocklist"`, "osd", "profile rbd pool=" + name}
	}
	return []string{"mon", `allow r, allow command "osd blocklist"`, "mgr", "allow rw", "mds", "allow rwp fsname=" + rig.FileSystem, "osd", "allow r tag cephfs data=" + rig.FileSystem}
}

func nodeCaps(engine v1beta1.Engine, name string) []string {
	if engine == v1beta1.EngineRBD {
		return []string{"mon", "profile rbd", "osd", "profile rbd pool=" + name}
	}
	return []string{"mon", "allow r fsname=" + rig.FileSystem, "mds", "allow rw fsname=" + rig.FileSystem + " path=/volumes/" + name, "osd", "allow rw tag cephfs data=" + rig.FileSystem}
}

func (s *site) setCaps(user string, caps ...string) {
	s.Helper()
	check.Got(small.Ceph(s.Context(), append([]string{"auth", "caps", "client." + user}, caps...)...))(s)
}

func (s *site) key(user string) string {
	s.Helper()
	return check.Got(small.Key(context.Background(), user))(s)
}

// writeKey replaces the key as the kubelet does: a link to the directory of the secret changes.
func (s *site) writeKey(key string) {
	s.Helper()
	now, link := filepath.Join(s.dir, fmt.Sprintf("..%d", time.Now().UnixNano())), filepath.Join(s.dir, "..data")
	steps := []func() error{
		func() error { return os.Mkdir(now, 0o700) },
		func() error { return os.WriteFile(filepath.Join(now, "key"), []byte(key), 0o400) },
		func() error { return os.Symlink(now, link+".new") },
		func() error { return os.Rename(link+".new", link) },
	}
	for _, step := range steps {
		check.OK(s, step())
	}
}

// writeNodeKey replaces the key of the user of nodes.
func (s *site) writeNodeKey(key string) {
	s.Helper()
	check.OK(s, errors.Join(os.WriteFile(s.at("node-key.new"), []byte(key), 0o400), os.Rename(s.at("node-key.new"), s.at("node-key"))))
}

func (s *site) at(name string) string { return filepath.Join(s.dir, name) }

func (s *site) writeKubeconfig(config *rest.Config) {
	s.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["a"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}
	file.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	file.Contexts["a"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "a"}
	file.CurrentContext = "a"
	check.OK(s, clientcmd.WriteToFile(*file, s.at("kubeconfig")))
}

// start runs the process as its pod would.
func (s *site) start() {
	s.Helper()
	port, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	check.OK(s, err)
	s.address = port.Addr().String()
	port.Close()
	var args []string
	for _, arg := range s.args {
		name, _, _ := strings.Cut(arg, "=")
		switch name {
		case "--namespace":
			arg = name + "=" + realapi.Namespace
		case "--key-file":
			arg = name + "=" + s.at("..data/key")
		case "--node-key-file":
			arg = name + "=" + s.at("node-key")
		case "--metrics-address":
			arg = name + "=" + s.address
		}
		args = append(args, arg)
	}
	s.cmd = exec.Command(binary, append(args, "--kubeconfig="+s.at("kubeconfig"))...)
	s.cmd.Stdout, s.cmd.Stderr = s, s
	if s.ended, err = child.Start(s.cmd); err != nil {
		s.Fatal(err)
	}
}

// beside starts another process for the pool, as a pod of a changed Deployment.
func (s *site) beside(changed ...string) *site {
	s.Helper()
	other := &site{TB: s.TB, pool: s.pool, node: s.node, dir: s.dir, holdfast: s.holdfast}
	for _, arg := range append(slices.Clone(s.args), "--identity=another") {
		name, _, _ := strings.Cut(arg, "=")
		if i := slices.IndexFunc(changed, func(c string) bool { return strings.HasPrefix(c, name+"=") }); i >= 0 {
			arg = changed[i]
		}
		other.args = append(other.args, arg)
	}
	other.start()
	s.Cleanup(other.kill)
	return other
}

// Write takes what the process prints.
func (s *site) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.Write(p)
}

func (s *site) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

// kill ends the process as a loss of power would.
func (s *site) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended
	s.Logf("the process was killed: %v", <-s.ended)
	s.cmd = nil
}

// stop ends the process as the kubelet does, and returns its error.
func (s *site) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := <-s.ended
	s.cmd = nil
	return err
}

// probe asks as the kubelet does; an answer of 0 is none.
func (s *site) probe(path string) (status int, body string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+path, http.NoBody)
	check.OK(s, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// until waits until it is so, and says what is instead when that takes too long.
func (s *site) until(what string, so func() (bool, string)) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	now := ""
	err := realapi.Until(ctx, func() bool {
		var is bool
		is, now = so()
		return is
	})
	if err != nil {
		s.Fatalf("%s: it is not so: %s", what, now)
	}
}

func (s *site) awaitReady() {
	s.Helper()
	s.until("the pool is ready", func() (bool, string) {
		status, body := s.probe("/readyz?verbose")
		return status == http.StatusOK, body
	})
}
