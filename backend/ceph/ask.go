//go:build ceph

package ceph

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
)

// Measure asks the monitors for the usage of a pool of data.
func Measure(conn *rados.Conn, pool string) (Usage, error) {
	text, _, err := conn.MonCommand([]byte(`{"prefix": "df", "detail": "detail", "format": "json"}`))
	if err != nil {
		return Usage{}, err
	}
	return parseUsage(text, pool)
}

// Ask sends a command to the monitors and decodes their answer.
func Ask(ctx context.Context, c *Cluster, command map[string]string, answer any) error {
	command = maps.Clone(command)
	command["format"] = "json"
	query, err := json.Marshal(command)
	if err != nil {
		return err
	}
	what := "ceph " + command["prefix"]
	text, err := Call(ctx, c, what, func(conn *rados.Conn) ([]byte, error) {
		text, _, err := conn.MonCommand(query)
		return text, err
	})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%w: the answer of the monitors to %s cannot be read: %w: %.200q", backend.ErrUnavailable, what, err, text)
	}
	return nil
}
