package ganesha

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// process is one run of Ganesha.
type process struct {
	bus, ganesha *child
	admin        *admin
	disconnect   context.CancelFunc // closes the connection to the bus
	written      uint64             // number of the last change in the configuration on disk
	served       map[uint16]wanted  // exports that Ganesha has
	refused      map[uint16]uint64  // number of the refused change that was logged
}

// start starts Ganesha, and returns when it serves clients.
func (s *Server) start(ctx context.Context) (*process, error) {
	l := &process{served: map[uint16]wanted{}, refused: map[uint16]uint64{}}
	if err := s.startBoth(ctx, l); err != nil {
		return nil, errors.Join(err, l.end(0))
	}
	return l, nil
}

func (s *Server) startBoth(ctx context.Context, l *process) error {
	c := &s.config
	if err := s.disk.refusal(ctx, c.Patience); err != nil {
		return err
	}
	epoch, err := nextEpoch(c.RecoveryDir, time.Now())
	if err != nil {
		c.Log.Warn("the number of this start of the NFS server could not be stored; free space where it is", "dir", c.RecoveryDir, "error", err)
	}
	if err := duplicateRecovery(c.RecoveryDir, c.Neighbours); err != nil {
		c.Log.Warn("clients on the previous or the new node of the NFS server may lose their locks; free space where it is", "dir", c.RecoveryDir, "error", err)
	}
	bus, address, err := startBus(ctx, c)
	if err != nil {
		return err
	}
	l.bus = bus
	connected, leave := context.WithCancel(context.WithoutCancel(ctx)) // a clean stop continues after ctx has ended
	l.disconnect = leave
	if l.admin, err = connectAdmin(connected, address, c); err != nil {
		return err
	}
	if l.served, err = s.write(l); err != nil {
		return err
	}
	out := &lines{hear: logGanesha(c.Log)}
	// blkid would report an outdated UUID from its cache for a reused device.
	env := []string{"DBUS_SYSTEM_BUS_ADDRESS=" + address, "BLKID_FILE=/dev/null"}
	l.ganesha, err = startChild(out, out, env, "ganesha.nfsd", "-F", "-L", "STDOUT", "-E", fmt.Sprint(epoch),
		"-f", s.file(), "-p", filepath.Join(c.RunDir, "ganesha.pid"))
	if err != nil {
		return err
	}
	return s.await(ctx, l)
}

func (s *Server) file() string { return filepath.Join(s.config.RunDir, "ganesha.conf") }

// write updates the configuration on disk, and returns the exports in it.
func (s *Server) write(l *process) (all map[uint16]wanted, err error) {
	s.mu.Lock()
	changes := s.changes
	all, exports := make(map[uint16]wanted, len(s.exports)), make(map[uint16]Export, len(s.exports))
	for id, w := range s.exports {
		all[id], exports[id] = w, w.Export
	}
	s.mu.Unlock()
	if l.written == changes && changes > 0 {
		return all, nil
	}
	if err := nodeops.ReplaceFile(s.file(), []byte(configuration(&s.config, exports))); err != nil {
		return nil, fmt.Errorf("writing the configuration of NFS-Ganesha: %w", err)
	}
	l.written = changes
	return all, nil
}

// await waits until Ganesha serves all exports that it could load, and applies what has changed since the configuration
// was written.
func (s *Server) await(ctx context.Context, l *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.StartLimit, fmt.Errorf("NFS-Ganesha is not up after %s", s.config.StartLimit))
	defer cancel()
	ctx, died := context.WithCancelCause(ctx)
	defer died(nil)
	go func() {
		select {
		case <-l.ganesha.done:
			died(l.ganesha.exitError())
		case <-l.bus.done:
			died(l.bus.exitError())
		case <-ctx.Done():
		}
	}()
	loaded, err := l.loaded(ctx, &s.config)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	for id := range l.served {
		if !slices.Contains(loaded, id) {
			delete(l.served, id)
		}
	}
	return s.applyAll(l)
}

// loaded waits for Ganesha and returns the exports that it has loaded.
func (l *process) loaded(ctx context.Context, c *Config) ([]uint16, error) {
	if err := l.admin.awaitGanesha(ctx); err != nil {
		return nil, err
	}
	ids, err := l.admin.exportIDs(ctx)
	if err != nil {
		return nil, err
	}
	return ids, probe(ctx, c.address(), c.StartLimit)
}

// watch returns when Ganesha does not answer, or ctx ends.
func (l *process) watch(ctx context.Context, c *Config) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(c.Interval):
		}
		if err := probe(ctx, c.address(), c.Patience); err != nil {
			return err
		}
	}
}

// exitCause returns which process has exited: that may be the cause of a failed call that is just not known yet.
func (l *process) exitCause() error {
	select {
	case <-l.ganesha.done:
		return l.ganesha.exitError()
	case <-l.bus.done:
		return l.bus.exitError()
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

// end stops the processes that are running, if any. With a limit of 0 it kills them at once.
func (l *process) end(limit time.Duration) error {
	var errs []error
	if l.ganesha != nil {
		errs = append(errs, l.ganesha.end(limit))
	}
	if l.disconnect != nil {
		l.disconnect()
	}
	if l.bus != nil {
		errs = append(errs, l.bus.end(0))
	}
	return errors.Join(errs...)
}
