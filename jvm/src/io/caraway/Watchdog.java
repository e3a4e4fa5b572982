package io.caraway;

/** Ends this JVM when the process that it serves has ended. */
public final class Watchdog {
  private static final int GONE = 70;

  private Watchdog() {}

  /**
   * Halts the JVM as soon as the process {@code pid} ends.
   *
   * <p>An orderly exit could take seconds, in which another engine may start the same jobs. Halting loses nothing, since a job can be killed at any
   * moment.
   */
  public static void follow(long pid) {
    Runnable halt = () -> Runtime.getRuntime().halt(GONE);
    ProcessHandle.of(pid).ifPresentOrElse(process -> process.onExit().thenRun(halt), halt);
  }
}
