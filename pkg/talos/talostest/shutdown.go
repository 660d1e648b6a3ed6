// SPDX-License-Identifier: Apache-2.0

package talostest

import "context"

// Shutdown powers the machine off.
func (c *connection) Shutdown(context.Context) error {
	return c.do(func(s *State) error {
		s.Shutdowns++
		s.Mode = Off
		return nil
	})
}
