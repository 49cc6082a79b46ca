//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
)

// qmp asks a QEMU by its monitor's socket to carry out a command.
func qmp(socket, command string, arguments any) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	answers := json.NewDecoder(c)
	var greeting any
	if err := answers.Decode(&greeting); err != nil {
		return err
	}
	type request struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}
	for _, r := range []request{{"qmp_capabilities", nil}, {command, arguments}} {
		if err := json.NewEncoder(c).Encode(r); err != nil {
			return err
		}
		for {
			var a struct {
				Return json.RawMessage
				Error  *struct{ Desc string }
			}
			if err := answers.Decode(&a); err != nil {
				return err
			}
			if a.Error != nil {
				return errors.New(a.Error.Desc)
			}
			if a.Return != nil {
				break // the rest are events
			}
		}
	}
	return nil
}

// unplug has the QEMU that the i-th HCA is plugged into ask its guest to give
// the device up.
func unplug(i int) error {
	if i >= len(monitors) {
		return errors.New("no -qmp was given for this HCA")
	}
	return qmp(monitors[i], "device_del", map[string]string{"id": fmt.Sprintf("hca%d", i)})
}
