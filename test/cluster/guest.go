package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/test/cluster/artifact"
	"github.com/holdfast-storage/holdfast/test/cluster/config"
	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// A guest is a node with a kernel of its own: User Mode Linux, in processes of this machine. Its root is the machine's,
// read-only, and its /var a disk of its own, which is all that outlives a power cut.

const (
	guestMemory = "2000M"
	guestDisk   = 8 << 30 // bytes, of which only what is written is taken
	guestState  = "/var/lib/node"
	guestPort   = "10251"
	runnerName  = "uml-runner"
)

func (n Node) boot(c *Cluster) string { return n.file(c, "boot") }

func (n Node) guestURL(c *Cluster) string { return "https://" + n.address(c) + ":" + guestPort }

// guest is the node as a component: one daemon for the machine, whatever runs in it.
func (n Node) guest(c *Cluster, p *probe) component {
	return component{n.Name, n.kernel(c), p.get(n.guestURL(c) + "/healthz")}
}

func (n Node) kernel(c *Cluster) []string {
	boot := n.boot(c)
	return []string{
		c.path("bin", runnerName), "boot", boot, "linux.uml", "mem=" + guestMemory, "rootfstype=hostfs", "root=/dev/root", "rootflags=/", "ro",
		"init=" + c.path("bin", runnerName), "HOLDFAST_UML=" + boot, "uml_dir=" + boot, "umid=" + n.Name,
		"con=null", "con0=null,fd:2", "con1=null,fd:1", "quiet",
		"ubda=" + filepath.Join(boot, "scratch"), "ubdb=" + n.file(c, "disk"),
		// The host sends several packets in one piece, which are cut off without gro, and a connection stalls.
		fmt.Sprintf("vec0:transport=tap,ifname=%s,depth=128,gro=1,mac=02:00:00:00:00:%02x", n.Name, n.Number),
	}
}

// startGuest boots the guest unless it runs, and waits until its daemons are up.
func (c *Cluster) startGuest(ctx context.Context, n Node) (string, error) {
	probe, err := c.newProbe()
	if err != nil {
		return "", err
	}
	for attempt := 1; ; attempt++ {
		said, err := c.bootGuest(ctx, n, probe)
		if err == nil && attempt > 1 {
			said += fmt.Sprintf(", at the %d. attempt", attempt)
		}
		if err == nil || attempt == bootAttempts || ctx.Err() != nil {
			return said, err
		}
		fmt.Fprintf(os.Stderr, "%s: %v; booting it again, %d of %d times\n", n.Name, err, attempt, bootAttempts-1)
		if err := c.cutPower(ctx, n); err != nil {
			return "", err
		}
	}
}

// Seldom a kernel of this kind hangs while it boots, spinning, without a word, or a program hangs in it that said that a
// system call failed, with ENOSYS, which cannot. Then it is switched off and on.
const (
	bootTime     = 90 * time.Second // of a processor: how busy the machine is does not matter
	bootAttempts = 5
	failedCall   = "failed with 38"
)

func (c *Cluster) bootGuest(ctx context.Context, n Node, p *probe) (string, error) {
	if err := n.prepareGuest(ctx, c); err != nil {
		return "", err
	}
	before, err := host.CPUTime(n.cgroup(c))
	if err != nil {
		return "", err
	}
	guest, failed := n.guest(c, p), added(c.log(n.Name), failedCall)
	answers := guest.ready
	guest.ready = func(ctx context.Context) error {
		if failed() {
			return host.Final(errors.New("a program in it hangs"))
		}
		if now, err := host.CPUTime(n.cgroup(c)); err == nil && now-before > bootTime {
			return host.Final(fmt.Errorf("it hangs: it has spent %s of a processor", now-before))
		}
		return answers(ctx)
	}
	return c.launch(ctx, guest, host.Daemon{
		Argv: n.kernel(c), Dir: n.boot(c), Log: c.log(n.Name), Record: c.record(n.Name), NetNS: c.netns(), Cgroup: n.cgroup(c),
		Env: []string{"TMPDIR=/dev/shm"}, // its memory: not to be written to a disk
	})
}

// added asks whether a text was added to a log from now on.
func added(log, text string) func() bool {
	before, _ := os.ReadFile(log) // the first boot makes it
	return func() bool {
		now, _ := os.ReadFile(log)
		return bytes.Contains(now[min(len(before), len(now)):], []byte(text))
	}
}

func (n Node) cgroup(c *Cluster) string { return c.cgroup() + "/" + n.Name }

// prepareGuest makes what the guest needs around it. What is there stays, above all the disk.
func (n Node) prepareGuest(ctx context.Context, c *Cluster) error {
	if c.runs(n.Name) {
		return nil
	}
	if err := errors.Join(os.MkdirAll(n.boot(c), 0o755), os.MkdirAll(c.pools(), 0o755), host.MakeCgroup(n.cgroup(c))); err != nil {
		return err
	}
	spec, err := n.guestConfig(c).Spec()
	if err != nil {
		return err
	}
	job, err := json.Marshal(map[string]any{"Argv": []string{c.path("bin", "guest"), filepath.Join(n.boot(c), "guest.json")}, "Restart": true})
	if err != nil {
		return err
	}
	scratch := filepath.Join(n.boot(c), "scratch")
	return errors.Join(
		host.WriteFile(filepath.Join(n.boot(c), "guest.json"), spec, 0o644),
		host.WriteFile(filepath.Join(n.boot(c), "job"), job, 0o644),
		relink(c.path("bin", runnerName), filepath.Join(n.boot(c), "runner")),
		host.WriteFile(scratch, nil, 0o600), os.Truncate(scratch, guestDisk),
		n.makeDisk(ctx, c), n.plug(ctx, c),
	)
}

// makeDisk makes a disk with a file system, under another name until it is complete.
func (n Node) makeDisk(ctx context.Context, c *Cluster) error {
	disk := n.file(c, "disk")
	if _, err := os.Stat(disk); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh := disk + ".new"
	if err := errors.Join(os.WriteFile(fresh, nil, 0o600), os.Truncate(fresh, guestDisk)); err != nil {
		return err
	}
	if _, err := host.Run(ctx, "mkfs.xfs", "-q", "-f", fresh); err != nil {
		return err
	}
	return os.Rename(fresh, disk)
}

// plug puts the guest on the bridge of the nodes, and makes known where its pods are.
func (n Node) plug(ctx context.Context, c *Cluster) error {
	_, _ = c.inside(ctx, "link delete "+n.Name) // of the boot before; or there is none
	for _, command := range []string{
		"tuntap add " + n.Name + " mode tap",
		"link set " + n.Name + " master " + nodeBridge + " up",
		"route replace " + n.podCIDR(c) + " via " + n.address(c) + " dev " + nodeBridge,
	} {
		if _, err := c.inside(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

// guestConfig is the configuration of the guest's own program.
func (n Node) guestConfig(c *Cluster) config.Guest {
	g := config.Guest{
		Name: n.Name, Address: n.address(c), Prefix: 24, Gateway: c.controlAddress(),
		Cluster: c.Dir, Boot: n.boot(c), Own: []string{c.State.KubeletRoot, c.pools()},
		Listen: n.address(c) + ":" + guestPort,
		Cert:   c.path("pki", n.Name+".crt"), Key: c.path("pki", n.Name+".key"), CA: c.path("pki", "ca.crt"),
		Socket: n.socket(c),
	}
	for _, d := range n.daemons(c, nil) {
		g.Daemons = append(g.Daemons, config.Daemon{Name: d.name, Argv: d.argv})
	}
	return g
}

// AddNode boots a new guest and waits until it is a node with all images.
func (c *Cluster) AddNode(ctx context.Context, steps Steps) error {
	if err := c.Load(); err != nil {
		return err
	}
	n, err := c.nextNode()
	if err != nil {
		return err
	}
	if err := c.furnishGuests(ctx, steps); err != nil {
		return err
	}
	c.State.Nodes = append(c.State.Nodes, n)
	if err := errors.Join(n.configure(c), c.save()); err != nil {
		return err
	}
	return c.bringUp(ctx, steps, n)
}

const mostNodes = 100

// nextNode names the node with the lowest free number.
func (c *Cluster) nextNode() (Node, error) {
	number := len(c.State.Nodes) + 1
	if number > mostNodes {
		return Node{}, fmt.Errorf("the cluster has %d nodes, and its network has room for no more", number-1)
	}
	return Node{Name: fmt.Sprintf("node%d", number), Number: number}, nil
}

// furnishGuests brings what all guests are made of.
func (c *Cluster) furnishGuests(ctx context.Context, steps Steps) error {
	err := steps.Do(ctx, "packages of guests", func(ctx context.Context, _ progress) (string, error) {
		return install(ctx, artifact.GuestPackages)
	})
	if err != nil {
		return err
	}
	return steps.Do(ctx, "build of guests", func(ctx context.Context, report progress) (string, error) {
		return c.buildPrograms(ctx, artifact.GuestPrograms, report)
	})
}

// StartNode boots a guest again from its disk.
func (c *Cluster) StartNode(ctx context.Context, steps Steps, name string) error {
	n, err := c.guestNamed(name)
	if err != nil {
		return err
	}
	if err := c.furnishGuests(ctx, steps); err != nil {
		return err
	}
	return c.bringUp(ctx, steps, n)
}

// bringUp boots a guest, unless it runs, and waits until the cluster can use it.
func (c *Cluster) bringUp(ctx context.Context, steps Steps, n Node) error {
	for _, step := range []struct {
		name string
		run  func(context.Context) (string, error)
	}{
		{"boot " + n.Name, func(ctx context.Context) (string, error) { return c.startGuest(ctx, n) }},
		{"images", func(ctx context.Context) (string, error) { return c.bringImages(ctx, n) }},
		{"node " + n.Name, func(ctx context.Context) (string, error) { return "ready", c.waitBooted(ctx, n) }},
	} {
		err := steps.Do(ctx, step.name, func(ctx context.Context, _ progress) (string, error) { return step.run(ctx) })
		if err != nil {
			return err
		}
	}
	return nil
}

// waitBooted waits until the API server has heard from the kubelet of this boot: what it knows may be from the last.
func (c *Cluster) waitBooted(ctx context.Context, n Node) error {
	client, err := c.newGuestClient(n)
	if err != nil {
		return err
	}
	boot, err := client.bootID(ctx)
	if err != nil {
		return err
	}
	if err := c.waitFor(ctx, "node/"+n.Name, "create", "jsonpath={.status.nodeInfo.bootID}="+boot, "condition=Ready"); err != nil {
		return fmt.Errorf("%w\n--- the end of its kubelet's log:\n%s", err, host.Tail(filepath.Join(n.boot(c), "kubelet.log"), logTail))
	}
	return nil
}

// KillNode cuts a guest's power.
func (c *Cluster) KillNode(ctx context.Context, steps Steps, name string) error {
	n, err := c.guestNamed(name)
	if err != nil {
		return err
	}
	return steps.Do(ctx, "cut the power of "+name, quiet(func(ctx context.Context) error { return c.cutPower(ctx, n) }))
}

func (c *Cluster) cutPower(ctx context.Context, n Node) error {
	if err := host.RemoveCgroup(ctx, n.cgroup(c)); err != nil {
		return err
	}
	if err := os.Remove(c.record(n.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// guestNamed loads the cluster and finds a guest in it.
func (c *Cluster) guestNamed(name string) (Node, error) {
	if err := c.Load(); err != nil {
		return Node{}, err
	}
	names := []string{}
	for _, n := range c.guests() {
		if n.Name == name {
			return n, nil
		}
		names = append(names, n.Name)
	}
	if name == c.State.Nodes[0].Name {
		return Node{}, fmt.Errorf("%s is this machine; only nodes that add-node has made can be killed and started", name)
	}
	return Node{}, fmt.Errorf("there is no node %q that add-node has made; there are: %s", name, strings.Join(names, ", "))
}

// guests are all nodes but the first, which is this machine.
func (c *Cluster) guests() []Node { return c.State.Nodes[1:] }
