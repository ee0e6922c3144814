package ganesha

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// busConfiguration is for a bus to which only root can connect, with all rights.
const busConfiguration = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="root"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
`

// startBus waits until the bus accepts connections, and returns its address.
func startBus(ctx context.Context, c *Config) (bus *child, address string, err error) {
	socket, config := filepath.Join(c.RunDir, "bus"), filepath.Join(c.RunDir, "bus.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, busConfiguration, socket), 0o600); err != nil {
		return nil, "", fmt.Errorf("writing the configuration of the bus: %w", err)
	}
	listens := make(chan struct{})
	listen := sync.OnceFunc(func() { close(listens) })
	stdout := &lines{hear: func(string) { listen() }} // its address, printed once
	stderr := &lines{hear: func(line string) {
		c.Log.LogAttrs(context.Background(), slog.LevelDebug, "the bus says", slog.String("text", line))
	}}
	bus, err = startChild(stdout, stderr, nil, "dbus-daemon", "--config-file="+config, "--nofork", "--nopidfile", "--print-address=1")
	if err != nil {
		return nil, "", err
	}
	late := time.NewTimer(c.StartLimit)
	defer late.Stop()
	select {
	case <-listens:
		return bus, "unix:path=" + socket, nil
	case <-bus.done:
		return nil, "", bus.exitError()
	case <-late.C:
		err = fmt.Errorf("dbus-daemon does not listen after %s", c.StartLimit)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, "", errors.Join(err, bus.end(0))
}
