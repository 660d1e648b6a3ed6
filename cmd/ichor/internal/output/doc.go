// SPDX-License-Identifier: Apache-2.0

// Package output prints API objects as kubectl does: tables made by the server where no format was asked for, else the
// objects themselves through cli-runtime's printers. It never invents a shape of its own.
package output
