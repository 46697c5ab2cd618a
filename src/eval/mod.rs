//! Evaluation of policies: closed loop on the simulated arm over seeds, modes and delays, open loop on recorded episodes.
